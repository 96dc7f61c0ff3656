// What the list and the page of a schedule have in common.
import type { ScheduleListed } from "../../api/types";
import { t } from "../../text";
import { Badge } from "../../ui/parts";
import { duration } from "../../view/format";

/** The rule: a cron expression, or a distance. */
export const ruleOf = ({ cron, every_ms }: ScheduleListed): string =>
  cron ?? (every_ms == null ? "–" : t().schedules.everySpan(duration(every_ms)));

/** A schedule that is not paused and has no next moment has ended. */
export function Activity({ of: { paused, next, unreadable } }: { of: ScheduleListed }) {
  if (unreadable) return <Badge tone="bad">{t().schedules.unreadable}</Badge>;
  if (paused) return <Badge tone="warn">{t().topics.paused}</Badge>;
  if (next.length === 0) return <Badge tone="plain">{t().schedules.over}</Badge>;
  return <Badge tone="good">{t().topics.active}</Badge>;
}
