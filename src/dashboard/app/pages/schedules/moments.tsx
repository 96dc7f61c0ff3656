import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { RequestOf } from "../../api/types";
import { t } from "../../text";
import { Failure } from "../../ui/failure";
import { useLoaded } from "../../ui/loaded";
import { When } from "../../ui/parts";
import { Table } from "../../ui/table";

export type Rule = RequestOf<"/delay/schedule/preview">;

const SHOWN = 5;

/** How long the preview waits for the next key, in ms. */
const TYPING = 300;

/** The value, once it has not changed for a while. */
function useSettled(value: string): string {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), TYPING);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

interface Props {
  rule: Rule;
  /** How often it is read again, in ms; 0: once for each rule. */
  every?: number;
}

/** The next moments of a rule, in the chosen zone and in that of the rule. */
export function Moments({ rule, every = 0 }: Props) {
  const texts = t().schedules;
  const key = useSettled(JSON.stringify(rule));
  const read = (signal: AbortSignal) =>
    call("/delay/schedule/preview", { ...(JSON.parse(key) as Rule), count: SHOWN }, signal);
  const { data, error } = useLoaded(key, every, read, true);
  if (error) return <Failure error={error} />;
  if (data === null) return <p class="quiet" data-loading>{t().loading}</p>;
  if (data.moments.length === 0) return <p>{texts.noMoments}</p>;
  return (
    <Table
      label={texts.moments}
      rows={data.moments}
      id={({ moment_ms }) => String(moment_ms)}
      columns={[
        { name: texts.moment, cell: ({ moment_ms }) => <When at={moment_ms} /> },
        { name: texts.localMoment, cell: ({ moment }) => moment },
      ]}
    />
  );
}
