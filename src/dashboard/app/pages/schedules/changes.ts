// The questions before a change of a schedule.
import { call } from "../../api/client";
import type { Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { go, route } from "../../state/route";
import { t } from "../../text";

type Reload = () => Promise<void>;

export const pause = (topic: string, schedule: string, reload: Reload): Question => ({
  title: t().topics.pauseTitle(schedule),
  text: t().schedules.pauseText,
  action: t().topics.pause,
  run: async () => {
    await call("/delay/schedule/pause", { topic, schedule });
    say(t().topics.pauseDone(schedule));
    await reload();
  },
});

export const resume = (topic: string, schedule: string, reload: Reload): Question => ({
  title: t().topics.resumeTitle(schedule),
  text: t().schedules.resumeText,
  action: t().topics.resume,
  run: async () => {
    await call("/delay/schedule/resume", { topic, schedule });
    say(t().topics.resumeDone(schedule));
    await reload();
  },
});

/** A repeat after a lost answer has the same key, so it adds no second task. */
export function run(topic: string, schedule: string, reload: Reload): Question {
  const idempotency_key = [...crypto.getRandomValues(new Uint8Array(12))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  return {
    title: t().schedules.runTitle(schedule),
    text: t().schedules.runText,
    action: t().task.runNow,
    run: async () => {
      const ran = await call("/delay/schedule/run", { topic, schedule, idempotency_key });
      say(t().add.added(topic, String(ran.task_id)));
      await reload();
    },
  };
}

export const remove = (topic: string, schedule: string): Question => ({
  title: t().topic.deleteTitle(schedule),
  text: t().schedules.deleteText,
  action: t().schedules.delete,
  isDangerous: true,
  retype: schedule,
  run: async (closed) => {
    await call("/delay/schedule/delete", { topic, schedule });
    const { page, parts } = route.peek();
    const isLeft =
      closed.aborted || page !== "schedules" || parts[0] !== topic || parts[1] !== schedule;
    say(t().topic.deleteDone(schedule), !isLeft);
    if (!isLeft) go("schedules", topic);
  },
});
