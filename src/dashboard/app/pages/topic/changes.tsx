// The questions before a change of a topic.
import { signal } from "@preact/signals";
import { call } from "../../api/client";
import type { Misfire } from "../../api/types";
import type { Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { go, route } from "../../state/route";
import { t } from "../../text";
import { Choice } from "../../ui/form";
import { Preview } from "../../ui/preview";
import { number } from "../../view/format";

type Reload = () => Promise<void>;

export const pause = (topic: string, reload: Reload): Question => ({
  title: t().topics.pauseTitle(topic),
  text: t().topics.pauseText,
  action: t().topics.pause,
  run: async () => {
    await call("/delay/topic/pause", { topic });
    say(t().topics.pauseDone(topic));
    await reload();
  },
});

/** "" leaves it to the topic. */
const MISFIRES: ("" | Misfire)[] = ["", "fire", "skip", "dead"];

/** Shows how many tasks fell due in the pause, and asks what happens to them. */
export function resume(topic: string, reload: Reload): Question {
  const waiting = signal<number | null>(null);
  const misfire = signal<"" | Misfire>("");
  const texts = t().topics;
  return {
    title: texts.resumeTitle(topic),
    text: texts.resumeText,
    action: texts.resume,
    more: () => (
      <>
        <Preview
          into={waiting}
          load={async (signal) =>
            (await call("/delay/topic/forecast", { topic, step: "1h", steps: 1 }, signal)).overdue
          }
        >
          {(count) => <p>{texts.fellDue(number(count))}</p>}
        </Preview>
        <fieldset class="choices">
          <legend>{texts.misfire}</legend>
          {MISFIRES.map((one) => (
            <Choice
              name="misfire"
              isOn={misfire.value === one}
              choose={() => (misfire.value = one)}
            >
              {texts.misfires[one === "" ? "policy" : one]}
            </Choice>
          ))}
        </fieldset>
      </>
    ),
    isReady: () => waiting.value !== null,
    run: async () => {
      const chosen = misfire.peek();
      await call("/delay/topic/resume", { topic, ...(chosen !== "" && { misfire: chosen }) });
      say(texts.resumeDone(topic));
      await reload();
    },
  };
}

/**
 * Deletes all tasks of a topic. Producers may add tasks meanwhile, so it ends with the call after
 * the one that reached the number of tasks that were there.
 */
export function purge(topic: string, tasks: number, reload: Reload): Question {
  const deleted = signal(0);
  const hasMore = signal(false);
  const texts = t().topic;
  return {
    title: texts.purgeTitle(topic),
    text: texts.purgeText(number(tasks)),
    action: texts.purge,
    isDangerous: true,
    retype: topic,
    progress: () =>
      hasMore.value ? `${texts.purged(number(deleted.value))} ${texts.purgeRest}` : "",
    run: async (closed) => {
      for (;;) {
        const isLast = deleted.peek() >= tasks;
        const { count, leased, more } = await call("/delay/topic/purge", { topic, confirm: topic });
        deleted.value += count;
        hasMore.value = more;
        if (more && !closed.aborted && !isLast) continue;
        const said = [texts.purged(number(deleted.peek()))];
        if (leased > 0) said.push(texts.purgeLeased(number(leased)));
        if (more) said.push(texts.purgeRest);
        say(said.join(" "));
        break;
      }
      await reload();
    },
  };
}

export const remove = (topic: string): Question => ({
  title: t().topic.deleteTitle(topic),
  text: t().topic.deleteText,
  action: t().topic.delete,
  isDangerous: true,
  retype: topic,
  run: async (closed) => {
    await call("/delay/topic/delete", { topic });
    const { page, parts } = route.peek();
    const isLeft = closed.aborted || page !== "topics" || parts[0] !== topic;
    say(t().topic.deleteDone(topic), !isLeft);
    if (!isLeft) go("topics");
  },
});
