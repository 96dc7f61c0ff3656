// What can be done with a task.
import { signal } from "@preact/signals";
import { call, CallError } from "../../api/client";
import type { RequestOf, Task } from "../../api/types";
import { ask, type Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { may, serviceNow } from "../../state/session";
import { t } from "../../text";
import { Copy } from "../../ui/copy";
import {
  DueFields, faultsOfDue, inputsOfDue, NO_DUE, requestOfDue, type Due,
} from "../../ui/due";
import { Action } from "../../ui/parts";
import { idsOf } from "../../ui/refused";
import { moment } from "../../view/time";
import { blockedBy } from "../dead/changes";
import { curlOf, hasHiddenOptions } from "./curl";

interface Props {
  topic: string;
  of: Task;
  reload: () => Promise<void>;
}

export function Actions({ topic, of: task, reload }: Props) {
  const texts = t().task;
  const { state } = task;
  const isChanger = may.changeTasks(topic);
  const question = (name: string, make: (props: Props) => Question) => (
    <Action name={name} run={() => ask(make({ topic, of: task, reload }))} />
  );
  return (
    <div class="buttons actions">
      {isChanger && state === "scheduled" && (
        <>
          {question(texts.runNow, runNow)}
          {question(texts.move, move)}
        </>
      )}
      {may.changeTopic(topic) && state === "dead" && question(texts.replay, replay)}
      {isChanger && ["scheduled", "leased", "dead"].includes(state) &&
        question(texts.cancelTask, cancel)}
      {task.content != null && may.add() && (
        hasHiddenOptions(task) ? (
          <p class="quiet">{texts.curlHidden}</p>
        ) : (
          <Copy name={texts.curl} text={() => curlOf(topic, task, serviceNow())} />
        )
      )}
    </div>
  );
}

async function update({ topic, of, reload }: Props, due: Partial<RequestOf<"/delay/task/update">>) {
  const request = { topic, task_id: of.task_id, ...due };
  const { due_ms } = await call("/delay/task/update", request);
  say(t().task.moved(topic, String(of.task_id), moment(due_ms)));
  await reload();
}

const runNow = (props: Props): Question => ({
  title: t().task.runNowTitle(props.topic, String(props.of.task_id)),
  text: t().task.runNowText,
  action: t().task.runNow,
  run: () => update(props, { delay: 0 }),
});

function move(props: Props): Question {
  const due = signal<Due>(NO_DUE);
  const change = (fields: Partial<Due>) => (due.value = { ...due.value, ...fields });
  return {
    title: t().task.moveTitle(props.topic, String(props.of.task_id)),
    text: t().task.moveText,
    action: t().task.move,
    more: (refused) => (
      <DueFields id="move" due={due.value} change={change} isTried={false} refused={refused} />
    ),
    inputs: () => idsOf("move", inputsOfDue(due.value)),
    isReady: () => Object.keys(faultsOfDue(due.value)).length === 0,
    run: () => update(props, requestOfDue(due.peek())),
  };
}

const cancel = ({ topic, of, reload }: Props): Question => ({
  title: t().task.cancelTitle(topic, String(of.task_id)),
  text: of.state === "leased" ? t().task.cancelLeasedText : t().task.cancelText,
  action: t().task.cancelTask,
  isDangerous: true,
  run: async () => {
    try {
      await call("/delay/task/cancel", { topic, task_id: of.task_id });
      say(t().task.cancelled(topic, String(of.task_id)));
    } catch (error) {
      if (!(error instanceof CallError && error.isCancelPending)) throw error;
      say(t().task.cancelPending(topic, String(of.task_id)));
    }
    await reload();
  },
});

const replay = ({ topic, of, reload }: Props): Question => ({
  title: t().task.replayTitle(topic, String(of.task_id)),
  text: t().task.replayText,
  action: t().task.replay,
  run: async () => {
    const { count } = await call("/delay/dead/replay", { topic, task_ids: [of.task_id] });
    const { replayed, notDead } = t().task;
    const said = (count === 1 ? replayed : notDead)(topic, String(of.task_id));
    say(said + (count === 1 ? blockedBy([of.sn]) : ""));
    await reload();
  },
});
