import { signal } from "@preact/signals";
import type { ComponentChildren, TargetedInputEvent } from "preact";
import { useState } from "preact/hooks";
import { CallError, callText } from "../../api/client";
import { zone } from "../../state/preferences";
import { go } from "../../state/route";
import { t } from "../../text";
import { Failure } from "../../ui/failure";
import { zoneName } from "../../view/time";
import { bodyOf, contentOf, faultsOf, timeOf, type Draft } from "./check";

/** It outlives the page, so that a look elsewhere does not lose the input. */
const draft = signal<Draft>({
  topic: "",
  isAt: false,
  delay: "10s",
  time: "",
  content: '{"sn": "message.call", "url": "/"}',
  key: "",
});

const change = (fields: Partial<Draft>): void => {
  draft.value = { ...draft.value, ...fields };
};

/** A form that adds a task, and then shows the task. */
export function Add() {
  const [isSending, setSending] = useState(false);
  const [isTried, setTried] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const texts = t().add;
  const now = draft.value;
  const isUtc = zone.value === "utc";
  const faults = faultsOf(now, isUtc);

  const submit = async (event: Event) => {
    event.preventDefault();
    setTried(true);
    const first = Object.keys(faults)[0];
    if (first !== undefined) {
      document.getElementById(`add-${first}`)?.focus();
      return;
    }
    setSending(true);
    setError(null);
    try {
      const { data } = await callText("/delay/task/add", bodyOf(now, isUtc));
      change({ key: "" });
      go("task", now.topic, String(data.task_id));
    } catch (failed) {
      if (failed instanceof CallError) setError(failed);
    } finally {
      setSending(false);
    }
  };

  /** An empty field is only reported after a try to send. */
  const faultOf = (name: keyof typeof faults, value: string) =>
    isTried || value !== "" ? faults[name] : undefined;
  const moment = timeOf(now.time, isUtc);

  return (
    <form class="form" onSubmit={submit} noValidate>
      <Input
        name="topic"
        label={texts.topic}
        help={texts.topicHelp}
        value={now.topic}
        fault={faultOf("topic", now.topic)}
      />
      <fieldset>
        <legend>{texts.when}</legend>
        <Choice isOn={!now.isAt} choose={() => change({ isAt: false })}>{texts.after}</Choice>
        <Choice isOn={now.isAt} choose={() => change({ isAt: true })}>{texts.at}</Choice>
      </fieldset>
      {now.isAt ? (
        <Input
          name="time"
          isTime
          label={texts.time}
          help={texts.timeHelp(zoneName(Number.isNaN(moment) ? Date.now() : moment))}
          value={now.time}
          fault={faultOf("time", now.time)}
        />
      ) : (
        <Input
          name="delay"
          label={texts.delay}
          help={texts.delayHelp}
          value={now.delay}
          fault={faultOf("delay", now.delay)}
        />
      )}
      <Labelled name="content" label={texts.content} help={texts.contentHelp} fault={faults.content}>
        {(attributes) => (
          <textarea
            {...attributes}
            rows={8}
            dir="ltr"
            spellcheck={false}
            value={now.content}
            onInput={(event) => change({ content: event.currentTarget.value })}
          />
        )}
      </Labelled>
      {!faults.content && <p class="quiet">{way(now.content)}</p>}
      <Input
        name="key"
        label={texts.key}
        help={texts.keyHelp}
        value={now.key}
        fault={faults.key}
      />
      {error && <Failure error={error} isChange />}
      <button type="submit" class="primary" disabled={isSending}>
        {isSending ? texts.sending : texts.submit}
      </button>
    </form>
  );
}

/** How a task of this content is delivered. */
function way(content: string): string {
  const { sn, url } = contentOf(content) ?? {};
  const target = [sn, url].filter((part) => typeof part === "string" && part !== "").join(" ");
  return target === "" ? t().add.willPull : t().add.willPush(target);
}

interface Attributes {
  id: string;
  name: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
}

interface LabelledProps {
  name: string;
  label: string;
  help: string;
  fault: string | undefined;
  children: (attributes: Attributes) => ComponentChildren;
}

function Labelled({ name, label, help, fault, children }: LabelledProps) {
  const id = `add-${name}`;
  return (
    <div class="labelled">
      <label for={id}>{label}</label>
      {children({
        id,
        name,
        "aria-describedby": `${id}-help`,
        "aria-invalid": fault !== undefined,
      })}
      <p id={`${id}-help`} class={fault === undefined ? "quiet" : "fault"}>
        {fault ?? help}
      </p>
    </div>
  );
}

interface InputProps {
  name: "topic" | "delay" | "time" | "key";
  label: string;
  help: string;
  value: string;
  fault: string | undefined;
  isTime?: boolean;
}

const Input = ({ name, label, help, value, fault, isTime = false }: InputProps) => (
  <Labelled name={name} label={label} help={help} fault={fault}>
    {(attributes) => {
      const all = {
        ...attributes,
        autocomplete: "off",
        spellcheck: false,
        value,
        onInput: (event: TargetedInputEvent<HTMLInputElement>) =>
          change({ [name]: event.currentTarget.value }),
      };
      if (isTime) return <input type="datetime-local" step={1} {...all} />;
      return <input type="text" {...all} />;
    }}
  </Labelled>
);

interface ChoiceProps {
  isOn: boolean;
  choose: () => void;
  children: ComponentChildren;
}

const Choice = ({ isOn, choose, children }: ChoiceProps) => (
  <label>
    <input type="radio" name="when" checked={isOn} onChange={choose} /> {children}
  </label>
);
