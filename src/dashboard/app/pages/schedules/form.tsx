// The form that creates or changes a schedule.
import { signal, type Signal } from "@preact/signals";
import { callText } from "../../api/client";
import type { ScheduleShown } from "../../api/types";
import type { Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { t } from "../../text";
import { Choice, Input, Labelled } from "../../ui/form";
import { saidOf, type Refused } from "../../ui/refused";
import { bodyOf, draftOf, faultsOf, ruleOfDraft, type Draft } from "./draft";
import { Moments } from "./moments";

/** The fields of the request that have an input of the same name. */
const FIELDS = [
  "schedule", "cron", "every", "zone", "start", "end", "misfire", "overlap", "content",
];

/** The fields of the request that are written among the other options. */
const OPTIONS = [
  "mode", "max_attempts", "timeout", "backoff", "headers", "expires_after", "on_dead",
];

const INPUTS = Object.fromEntries([
  ...FIELDS.map((field) => [field, `set-${field}`]),
  ...OPTIONS.map((field) => [field, "set-options"]),
]) as Record<string, string>;

/** `of` is the schedule that is changed; null: a new one. */
export function set(
  topic: string,
  of: ScheduleShown | null,
  reload: () => Promise<void>,
): Question {
  const draft = signal(draftOf(of));
  const texts = t().schedules;
  return {
    title: of === null ? texts.setTitle(topic) : texts.changeTitle(of.schedule),
    text: of === null ? texts.setText : texts.changeText,
    action: texts.save,
    inputs: () => INPUTS,
    more: (refused) => <Fields draft={draft} isNew={of === null} refused={refused} />,
    isReady: () => Object.keys(faultsOf(draft.value)).length === 0,
    run: async () => {
      const { data } = await callText("/delay/schedule/set", bodyOf(topic, draft.peek()));
      say(texts.results[data.result ?? "changed"](data.schedule));
      await reload();
    },
  };
}

interface Props {
  draft: Signal<Draft>;
  isNew: boolean;
  refused: Refused | null;
}

function Fields({ draft, isNew, refused }: Props) {
  const texts = t().schedules;
  const now = draft.value;
  const faults = faultsOf(now);
  const change = (fields: Partial<Draft>) => (draft.value = { ...draft.value, ...fields });
  const input = (
    name: "cron" | "every" | "zone" | "start" | "end" | "schedule",
    fault?: string,
  ) => (
    <Input
      id={`set-${name}`}
      label={texts.fields[name]}
      help={texts.helps[name]}
      value={now[name]}
      change={(value) => change({ [name]: value })}
      fault={saidOf(refused, name) ?? fault}
    />
  );
  const select = <N extends "misfire" | "overlap">(name: N, words: Draft[N][], help: string) => (
    <Labelled
      id={`set-${name}`}
      label={texts[name]}
      help={help}
      fault={saidOf(refused, name)}
    >
      {(attributes) => (
        <select
          {...attributes}
          value={now[name]}
          onChange={(event) => change({ [name]: event.currentTarget.value })}
        >
          {words.map((word) => <option value={word}>{word}</option>)}
        </select>
      )}
    </Labelled>
  );
  const area = (name: "content" | "options", rows: number, fault?: string) => (
    <Labelled id={`set-${name}`} label={texts.fields[name]} help={texts.helps[name]} fault={fault}>
      {(attributes) => (
        <textarea
          {...attributes}
          rows={rows}
          dir="ltr"
          spellcheck={false}
          value={now[name]}
          onInput={(event) => change({ [name]: event.currentTarget.value })}
        />
      )}
    </Labelled>
  );
  return (
    <>
      {isNew && input("schedule", now.schedule === "" ? undefined : faults.schedule)}
      <fieldset class="choices">
        <legend>{texts.rule}</legend>
        <Choice name="rule" isOn={now.isCron} choose={() => change({ isCron: true })}>
          {texts.byCron}
        </Choice>
        <Choice name="rule" isOn={!now.isCron} choose={() => change({ isCron: false })}>
          {texts.byEvery}
        </Choice>
      </fieldset>
      {input(now.isCron ? "cron" : "every")}
      {input("zone")}
      {input("start")}
      {input("end")}
      <section class="preview" aria-labelledby="set-moments">
        <h3 id="set-moments">{texts.moments}</h3>
        <Moments rule={ruleOfDraft(now)} />
      </section>
      {select("misfire", ["once", "all"], texts.misfires[now.misfire])}
      {select("overlap", ["allow", "skip"], texts.overlaps[now.overlap])}
      {area("content", 5, saidOf(refused, "content") ?? faults.content)}
      {area("options", 3, saidOf(refused, ...OPTIONS) ?? faults.options)}
    </>
  );
}
