import { now } from "../../state/clock";
import { t } from "../../text";
import { Badge } from "../../ui/parts";

/** Tasks are overdue for moments in normal work, and the figures are some seconds old. In ms. */
const OVERDUE = 5_000;

interface Props {
  of: { paused: boolean; oldest_overdue_ms?: number | null };
}

/** A topic whose tasks are overdue is not active, whatever delays them. */
export function TopicState({ of: { paused, oldest_overdue_ms } }: Props) {
  const texts = t().topics;
  if (paused) return <Badge tone="warn">{texts.paused}</Badge>;
  if (oldest_overdue_ms != null && now.value - oldest_overdue_ms > OVERDUE) {
    return <Badge tone="warn">{texts.overdue}</Badge>;
  }
  return <Badge tone="good">{texts.active}</Badge>;
}
