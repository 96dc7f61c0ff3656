// The form for a topic's settings.
import { signal, type Signal } from "@preact/signals";
import { call } from "../../api/client";
import type { Topic } from "../../api/types";
import type { Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { t } from "../../text";
import { Input, Labelled } from "../../ui/form";
import {
  areChanged, draftOf, faultOf, requestOf, SETTINGS, type Draft, type Setting,
} from "./settings";

/** The words of the settings that have only some values. */
const WORDS: Partial<Record<Setting, string[]>> = {
  mode: ["auto", "push", "pull"],
  misfire: ["fire", "skip", "dead"],
};

export function edit({ topic, policy }: Topic, reload: () => Promise<void>): Question {
  const before = draftOf(policy);
  const draft = signal(before);
  const texts = t().topic;
  return {
    title: texts.editTitle(topic),
    text: texts.editText,
    action: texts.save,
    more: () => SETTINGS.map((name) => <SettingField name={name} draft={draft} key={name} />),
    isReady: () =>
      areChanged(before, draft.value) &&
      SETTINGS.every((name) => faultOf(name, draft.value[name]) === undefined),
    run: async () => {
      await call("/delay/topic/set", requestOf(topic, before, draft.peek()));
      say(texts.saved(topic));
      await reload();
    },
  };
}

function SettingField({ name, draft }: { name: Setting; draft: Signal<Draft> }) {
  const texts = t().topic;
  const value = draft.value[name];
  const change = (text: string) => (draft.value = { ...draft.value, [name]: text });
  const labelled = {
    id: `setting-${name}`,
    label: texts.settings[name] ?? name,
    help: texts.settingHelps[name],
  };
  const words = WORDS[name];
  if (words) {
    return (
      <Labelled {...labelled}>
        {(attributes) => (
          <select
            {...attributes}
            value={value}
            onChange={(event) => change(event.currentTarget.value)}
          >
            <option value="">{texts.asConfigured}</option>
            {words.map((word) => <option value={word}>{word}</option>)}
          </select>
        )}
      </Labelled>
    );
  }
  const fault = faultOf(name, value);
  return (
    <Input {...labelled} value={value} change={change} fault={fault && texts.badSettings[fault]} />
  );
}
