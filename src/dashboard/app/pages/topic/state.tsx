import { t } from "../../text";
import { Badge } from "../../ui/parts";

interface Props {
  of: { paused: boolean; overdue: boolean };
}

/** A topic whose tasks are overdue is not active, whatever delays them. */
export function TopicState({ of: { paused, overdue } }: Props) {
  const texts = t().topics;
  return (
    <>
      {paused && <Badge tone="warn">{texts.paused}</Badge>}{" "}
      {overdue && <Badge tone="warn">{texts.overdue}</Badge>}
      {!paused && !overdue && <Badge tone="good">{texts.active}</Badge>}
    </>
  );
}
