import { useState } from "preact/hooks";
import { callText } from "../../api/client";
import type { Task as Shown } from "../../api/types";
import { href } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Copy } from "../../ui/copy";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Field, State, When } from "../../ui/parts";
import { number } from "../../view/format";
import { hasEnded } from "../../view/states";
import { Actions } from "./actions";
import { Find } from "./find";
import { Timeline } from "./timeline";

/** A task by its topic and id. */
export function Task({ parts: [topic = "", id = ""] }: { parts: string[] }) {
  const name = `${topic}/${id}`;
  return (
    <>
      <Find topic={topic} id={id} key={`find/${name}`} />
      {topic !== "" && id !== "" && <Followed topic={topic} id={id} key={name} />}
    </>
  );
}

/** Reads the task each second until it ends. */
function Followed({ topic, id }: { topic: string; id: string }) {
  const [isOver, setOver] = useState(false);
  const loaded = useLoaded("task", isOver ? 0 : 1000, async (signal) => {
    const request = JSON.stringify({ topic, task_id: id });
    const answer = await callText("/delay/task/get", request, signal);
    setOver(hasEnded(answer.data.task.state));
    return answer;
  });
  return (
    <Show of={loaded}>
      {({ data: { task }, text }) => (
        <>
          <Facts topic={topic} of={task} />
          <Actions topic={topic} of={task} reload={loaded.reload} />
          <Timeline of={task} />
          <Content of={task} />
          <Options of={task} />
          <Raw text={text} />
        </>
      )}
    </Show>
  );
}

function Facts({ topic, of: task }: { topic: string; of: Shown }) {
  const texts = t().task;
  return (
    <section aria-label={texts.state}>
      <p class="state" role="status">
        <State of={task.state} />{" "}
        <span class="quiet">{hasEnded(task.state) ? texts.ended : texts.follows}</span>
      </p>
      <dl class="fields">
        <Field name={texts.topic}>
          {may.readTopic(topic) ? <a href={href("topics", topic)}>{topic}</a> : topic}
        </Field>
        <Field name={texts.due}><When at={task.due_ms} /></Field>
        <Field name={texts.created}><When at={task.created_ms} /></Field>
        <Field name={texts.finished}><When at={task.finished_ms} /></Field>
        <Field name={texts.attempts}>{number(task.attempts)}</Field>
        <Field name={texts.mode}>{texts.modes[task.mode]}</Field>
        {task.sn != null && <Field name={texts.destination}><Exact text={task.sn} /></Field>}
        {task.key != null && <Field name={texts.key}><Exact text={task.key} /></Field>}
        {task.lease != null && <Field name={texts.lease}>{texts.holders[task.lease]}</Field>}
        {task.last_outcome != null && (
          <Field name={texts.lastOutcome}><Exact text={task.last_outcome} /></Field>
        )}
        <Field name={texts.webhookId}><code>{task.webhook_id}</code></Field>
      </dl>
    </section>
  );
}

function Content({ of: { content, content_removed } }: { of: Shown }) {
  const texts = t().task;
  return (
    <section aria-labelledby="content">
      <div class="heading">
        <h2 id="content">{texts.content}</h2>
        {content != null && <Copy text={() => content} />}
      </div>
      {content == null ? (
        <p class="quiet">{content_removed ? texts.contentRemoved : texts.contentHidden}</p>
      ) : (
        <pre tabIndex={0} dir="ltr" data-content aria-labelledby="content" role="group">
          <Exact text={content} />
        </pre>
      )}
    </section>
  );
}

/** The options that the task has instead of its topic's settings. */
function Options({ of: { options } }: { of: Shown }) {
  const texts = t().task;
  if (Object.keys(options).length === 0) return null;
  return (
    <section aria-labelledby="options">
      <h2 id="options">{texts.options}</h2>
      <pre tabIndex={0} dir="ltr" aria-labelledby="options" role="group">
        <Exact text={JSON.stringify(options, null, 2)} />
      </pre>
    </section>
  );
}

function Raw({ text }: { text: string }) {
  const [isOpen, setOpen] = useState(false);
  const name = t().task.raw;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}</summary>
      {isOpen && (
        <pre tabIndex={0} dir="ltr" role="group" aria-label={name}>
          <Exact text={text} />
        </pre>
      )}
    </details>
  );
}
