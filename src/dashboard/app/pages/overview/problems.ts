// What is wrong now, as sentences, derived from an overview.
import type { Overview } from "../../api/types";
import { t } from "../../text";
import { age, count, duration, number } from "../../view/format";

export interface Problem {
  tone: "bad" | "warn";
  text: string;
  /** The page that shows more. */
  page?: string;
  /** The topic that shows more, and its tasks. */
  topic?: string;
  /** What changes each second. */
  more?: string;
}

/** A sample is read each second. */
const STALE = 5_000;

/** The alert on clocks has the same bound, in ms. */
const CLOCK_OFFSET = 1000;

/** The problems, the worst first. `sampleAge` is in ms. */
export function problemsOf(shown: Overview, sampleAge: number): Problem[] {
  const texts = t().problems;
  const found: Problem[] = [];
  const add = (tone: Problem["tone"], text: string, page?: string, more: Partial<Problem> = {}) =>
    found.push({ tone, text, ...(page && { page }), ...more });

  if (sampleAge > STALE) add("bad", texts.stale(age(sampleAge)), "system");
  if (!shown.complete) add("warn", texts.incomplete);
  if (shown.workers === 0) add("bad", texts.noWorkers, "system");

  const { health } = shown;
  if (health.disk_full) add("bad", texts.diskFull, "system");
  if (health.servers_away > 0) add("bad", texts.serversAway(number(health.servers_away)), "system");
  if (health.config_refused) add("warn", texts.configRefused, "system");
  const offset = Math.abs(health.clock_offset_ms);
  if (offset > CLOCK_OFFSET) add("warn", texts.clockOffset(duration(offset)), "system");

  const pages: Record<string, string> = { receiver: "destinations", operator: "topics" };
  for (const { culprit, count: tasks, cut, oldest_ms, topic } of shown.overdue) {
    // Tasks are overdue for moments in normal work.
    const late = oldest_ms == null ? 0 : shown.at_ms - oldest_ms;
    const say = texts.overdue[culprit];
    if (tasks === 0 || late <= shown.objective.lateness_ms || !say) continue;
    const tone = culprit === "delayd" || culprit === "store" ? "bad" : "warn";
    const of = culprit === "consumer" && topic ? { topic } : {};
    const why = culprit === "receiver" ? newestError(shown) : {};
    add(tone, say(count(tasks, cut), age(late)), pages[culprit], { ...of, ...why });
  }

  for (const destination of shown.destinations) {
    const { sn, breaker, waiting, configured, held, no_access_token, last_error } = destination;
    const since = shown.at_ms - (destination.last_error_ms ?? shown.at_ms);
    const error = last_error == null ? {} : { more: texts.lastError(last_error, age(since)) };
    const tasks = number(waiting);
    if (!configured && waiting > 0) add("bad", texts.unconfigured(sn, tasks), "destinations");
    if (no_access_token != null) {
      add("bad", texts.noToken(sn, tasks), "destinations", { more: no_access_token });
    }
    if (breaker === "open") add("bad", texts.open(sn, tasks), "destinations", error);
    if (breaker === "half_open") add("warn", texts.halfOpen(sn, tasks), "destinations", error);
    if (held) add("warn", texts.held(sn, tasks), "destinations");
  }

  const left = budgetLeft(shown);
  if (left !== null && left < 0) add("bad", texts.budget);
  if (shown.paused_topics > 0) add("warn", texts.paused(number(shown.paused_topics)), "topics");
  if (shown.tasks.dead > 0) add("warn", texts.dead(number(shown.tasks.dead)), "dead");
  const order = { bad: 0, warn: 1 };
  return found.sort((a, b) => order[a.tone] - order[b.tone]);
}

/** Which destination failed last, unless an open breaker says it. */
function newestError({ destinations, at_ms }: Overview): { more?: string } {
  if (destinations.some(({ breaker }) => breaker !== "closed")) return {};
  const failed = destinations.filter(({ overdue, last_error }) => overdue > 0 && last_error);
  const at = (one?: { last_error_ms?: number | null }) => one?.last_error_ms ?? 0;
  const [last] = failed.sort((a, b) => at(b) - at(a));
  if (!last?.last_error) return {};
  return { more: `${last.sn}: ${t().problems.lastError(last.last_error, age(at_ms - at(last)))}` };
}

/** The share of the budget that is left; below 0 if it is exceeded, null without tasks. */
export function budgetLeft({ objective: { good, bad, target } }: Overview): number | null {
  const all = good + bad;
  return all === 0 ? null : 1 - bad / (all * (1 - target));
}
