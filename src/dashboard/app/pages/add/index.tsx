import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, CallError, callText } from "../../api/client";
import { lateFailure, say } from "../../state/notice";
import { go } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { DueFields, NO_DUE } from "../../ui/due";
import { Failure } from "../../ui/failure";
import { Choice, Input, Labelled } from "../../ui/form";
import { useLoaded } from "../../ui/loaded";
import { Action } from "../../ui/parts";
import { idsOf, refusedOf, saidOf } from "../../ui/refused";
import {
  bodyOf, contentOf, faultsOf, inputsOf, MODES, withService, type Draft,
} from "./check";

/** The receiver of the README answers it. */
const EXAMPLE = '{"sn": "message.call", "url": "/"}';

/** It outlives the page, so that a look elsewhere does not lose the input. */
const draft = signal<Draft>({
  ...NO_DUE,
  topic: "",
  delay: "10s",
  content: EXAMPLE,
  mode: "auto",
  key: "",
  idempotencyKey: "",
  headers: "",
  attempts: "",
});

const change = (fields: Partial<Draft>): void => {
  draft.value = { ...draft.value, ...fields };
};

/** A form that adds a task, and then shows the task. */
export function Add() {
  const [isSending, setSending] = useState(false);
  const [isTried, setTried] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const isLeft = useRef(false);
  useEffect(() => () => void (isLeft.current = true), []);
  const texts = t().add;
  const now = draft.value;
  const faults = faultsOf(now);
  const inputs = idsOf("add", inputsOf(now));
  const refused = refusedOf(error, Object.keys(inputs));
  useEffect(() => {
    if (refused) document.getElementById(inputs[refused.field] ?? "")?.focus();
  }, [error]);

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
      const { data } = await callText("/delay/task/add", bodyOf(now));
      change({ key: "", idempotencyKey: "" });
      const id = String(data.task_id);
      if (isLeft.current) say(texts.added(now.topic, id));
      else go("task", now.topic, id);
    } catch (failed) {
      if (!(failed instanceof CallError)) throw failed;
      if (isLeft.current) lateFailure.value = { action: texts.submit, error: failed };
      else setError(failed);
    } finally {
      setSending(false);
    }
  };

  return (
    <form
      class="form"
      onSubmit={submit}
      onInput={() => refused && setError(null)}
      noValidate
    >
      <Input
        id="add-topic"
        label={texts.topic}
        help={texts.topicHelp}
        value={now.topic}
        change={(topic) => change({ topic })}
        fault={
          saidOf(refused, "topic") ??
          (isTried || now.topic !== "" ? faults.topic : undefined)
        }
      />
      <DueFields id="add" due={now} change={change} isTried={isTried} refused={refused} />
      <Labelled
        id="add-content"
        label={texts.content}
        help={texts.contentHelp}
        fault={saidOf(refused, "content") ?? faults.content}
      >
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
      <Services />
      {!faults.content && now.mode === "auto" && <p class="quiet">{way(now.content)}</p>}
      <fieldset>
        <legend>{texts.mode}</legend>
        {MODES.map((mode) => (
          <Choice
            key={mode}
            name="add-mode"
            isOn={now.mode === mode}
            choose={() => change({ mode })}
          >
            {texts.modes[mode]}
          </Choice>
        ))}
      </fieldset>
      {saidOf(refused, "mode") && <p class="fault" role="alert">{saidOf(refused, "mode")}</p>}
      <Input
        id="add-key"
        label={texts.key}
        help={texts.keyHelp}
        value={now.key}
        change={(key) => change({ key })}
        fault={saidOf(refused, "key") ?? faults.key}
      />
      <Input
        id="add-idempotency-key"
        label={texts.idempotencyKey}
        help={texts.idempotencyKeyHelp}
        value={now.idempotencyKey}
        change={(idempotencyKey) => change({ idempotencyKey })}
        fault={saidOf(refused, "idempotency_key") ?? faults["idempotency-key"]}
      />
      <Input
        id="add-headers"
        label={texts.headers}
        help={texts.headersHelp}
        value={now.headers}
        change={(headers) => change({ headers })}
        fault={saidOf(refused, "headers") ?? faults.headers}
      />
      <Input
        id="add-attempts"
        label={texts.attempts}
        help={texts.attemptsHelp}
        value={now.attempts}
        change={(attempts) => change({ attempts })}
        fault={saidOf(refused, "max_attempts") ?? faults.attempts}
      />
      {error && !refused && <Failure error={error} isChange />}
      <button type="submit" class="primary" disabled={isSending}>
        {isSending ? texts.sending : texts.submit}
      </button>
    </form>
  );
}

/** The services that exist: the first of them is proposed, and each can be chosen. */
function Services() {
  const loaded = useLoaded("services", 0, async (signal) => {
    if (!may.readAll()) return [];
    const { destinations } = await call("/delay/destination/list", { sampled: true }, signal);
    return destinations.filter(({ configured }) => configured).map(({ sn }) => sn);
  });
  const [left, setLeft] = useState<string | null>(null);
  const choose = (sn: string) => {
    const { content } = draft.peek();
    const changed = withService(content.trim() === "" ? EXAMPLE : content, sn);
    setLeft(changed === null ? content : null);
    if (changed !== null) change({ content: changed });
  };
  const names = loaded.data ?? [];
  const [first] = names;
  useEffect(() => {
    const isExample = draft.peek().content === EXAMPLE;
    if (first !== undefined && isExample && !names.includes("message.call")) {
      choose(first);
    }
  }, [first]);
  if (names.length === 0) return null;
  return (
    <div class="buttons">
      <span class="quiet">{t().add.services}</span>
      {names.map((sn) => (
        <Action key={sn} isSmall name={sn} run={() => choose(sn)} />
      ))}
      {left === draft.value.content && (
        <p class="fault" role="alert">{t().add.serviceNotSet}</p>
      )}
    </div>
  );
}

/** How a task of this content is delivered. */
function way(content: string): string {
  const { sn, url } = contentOf(content) ?? {};
  const target = [sn, url].filter((part) => typeof part === "string" && part !== "").join(" ");
  return target === "" ? t().add.willPull : t().add.willPush(target);
}
