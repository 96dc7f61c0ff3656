import type { Signal } from "@preact/signals";
import { LANGUAGES, language, THEMES, theme, ZONES, zone } from "../state/preferences";
import { nameOf, t } from "../text";

/** Theme, language and time zone. */
export const Preferences = () => (
  <div class="preferences" role="group" aria-label={t().preferences}>
    <Choice label={t().theme} of={theme} from={THEMES} name={(one) => t().themes[one]} />
    <Choice label={t().language} of={language} from={LANGUAGES} name={nameOf} />
    <Choice label={t().zone} of={zone} from={ZONES} name={(one) => t().zones[one]} />
  </div>
);

interface Props<T extends string> {
  label: string;
  of: Signal<T>;
  from: readonly T[];
  name: (one: T) => string;
}

const Choice = <T extends string>({ label, of, from, name }: Props<T>) => (
  <label>
    <span class="quiet">{label}</span>
    <select value={of.value} onChange={(event) => (of.value = event.currentTarget.value as T)}>
      {from.map((one) => (
        <option value={one}>{name(one)}</option>
      ))}
    </select>
  </label>
);
