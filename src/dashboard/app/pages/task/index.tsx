import { useState } from "preact/hooks";
import { callText } from "../../api/client";
import type { Task as Shown } from "../../api/types";
import { t } from "../../text";
import { Copy } from "../../ui/copy";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Badge, Field, type Tone, When } from "../../ui/parts";
import { number } from "../../view/format";
import { Find } from "./find";
import { Timeline } from "./timeline";

const ENDED: Shown["state"][] = ["delivered", "dead", "cancelled", "expired"];

const TONES: Record<Shown["state"], Tone> = {
  scheduled: "plain",
  leased: "warn",
  delivered: "good",
  dead: "bad",
  cancelled: "plain",
  expired: "warn",
};

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
  const [hasEnded, setEnded] = useState(false);
  const loaded = useLoaded("task", hasEnded ? 0 : 1000, async (signal) => {
    const request = JSON.stringify({ topic, task_id: id });
    const answer = await callText("/delay/task/get", request, signal);
    setEnded(ENDED.includes(answer.data.task.state));
    return answer;
  });
  return (
    <Show of={loaded}>
      {({ data, text }) => (
        <>
          <Facts of={data.task} hasEnded={hasEnded} />
          <Timeline of={data.task} />
          <Content of={data.task} text={text} />
        </>
      )}
    </Show>
  );
}

function Facts({ of: task, hasEnded }: { of: Shown; hasEnded: boolean }) {
  const texts = t().task;
  return (
    <section>
      <p class="state" role="status">
        <Badge tone={TONES[task.state]}>{t().states[task.state]}</Badge>{" "}
        <span class="quiet">{hasEnded ? texts.ended : texts.follows}</span>
      </p>
      <dl class="fields">
        <Field name={texts.due}><When at={task.due_ms} /></Field>
        <Field name={texts.created}><When at={task.created_ms} /></Field>
        <Field name={texts.finished}><When at={task.finished_ms} /></Field>
        <Field name={texts.attempts}>{number(task.attempts)}</Field>
        <Field name={texts.mode}>{texts.modes[task.mode]}</Field>
        {task.sn != null && <Field name={texts.destination}><Exact text={task.sn} /></Field>}
        {task.key != null && <Field name={texts.key}><Exact text={task.key} /></Field>}
        {task.lease != null && <Field name={texts.lease}>{task.lease}</Field>}
        {task.last_outcome != null && (
          <Field name={texts.lastOutcome}><Exact text={task.last_outcome} /></Field>
        )}
        <Field name={texts.webhookId}><code>{task.webhook_id}</code></Field>
      </dl>
    </section>
  );
}

function Content({ of: { content }, text }: { of: Shown; text: string }) {
  const texts = t().task;
  return (
    <section aria-labelledby="content">
      <div class="heading">
        <h2 id="content">{texts.content}</h2>
        {content != null && <Copy text={content} />}
      </div>
      {content == null ? (
        <p class="quiet">{texts.contentHidden}</p>
      ) : (
        <pre tabIndex={0} dir="ltr" data-content aria-labelledby="content" role="group">
          <Exact text={content} />
        </pre>
      )}
      <details>
        <summary>{texts.raw}</summary>
        <pre tabIndex={0} dir="ltr" role="group" aria-label={texts.raw}>
          <Exact text={text} />
        </pre>
      </details>
    </section>
  );
}
