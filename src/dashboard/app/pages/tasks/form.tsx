import { useEffect, useRef, useState } from "preact/hooks";
import type { TaskState } from "../../api/types";
import { goWith } from "../../state/route";
import { t } from "../../text";
import { TASK_STATES } from "../../view/states";
import { inputOf, momentOf, zoneName } from "../../view/time";
import { hasPeriod, isInAllTopics, queryOf, searchable, type By, type Filters } from "./filters";

/** What a field shows for Unix seconds. */
const inputOfSeconds = (seconds: string): string =>
  seconds === "" ? "" : inputOf(Number(seconds) * 1000);

function secondsOf(time: string): string {
  const ms = momentOf(time);
  return Number.isNaN(ms) ? "" : String(ms / 1000);
}

/** The name of the zone at the time in a field, or now. */
function zoneAt(time: string): string {
  const ms = momentOf(time);
  return zoneName(Number.isNaN(ms) ? Date.now() : ms);
}

/** What is not searched yet is searched in the first field that the token may search. */
const shownOf = (filters: Filters): Filters => ({
  ...filters,
  by: filters.q === "" ? (searchable()[0] ?? "sn") : filters.by,
  from: inputOfSeconds(filters.from),
  to: inputOfSeconds(filters.to),
});

interface Props {
  filters: Filters;
  /** The topics that are proposed. */
  topics: string[];
}

/** In another zone the same digits are another time, so a change of the zone fills it again. */
export function FilterForm({ filters, topics }: Props) {
  const [draft, setDraft] = useState(shownOf(filters));
  const [isTried, setTried] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  // The value of a time that is not complete is empty, but it does not mean "no bound".
  const [halfTimes, setHalfTimes] = useState<string[]>([]);
  // The address may change without the form. A new form would lose the focus.
  useEffect(() => {
    setDraft(shownOf(filters));
    setHalfTimes([]);
  }, [JSON.stringify(filters)]);
  const isHalf = (name: string) => halfTimes.includes(name);
  const change = (fields: Partial<Filters>) => setDraft({ ...draft, ...fields });
  const texts = t().tasks;
  const wanted = { ...draft, topic: draft.topic.trim(), q: draft.q.trim() };
  const isEverywhere = isInAllTopics(wanted);
  const lacksTopic = !isEverywhere && wanted.topic === "";
  const submit = (event: Event) => {
    event.preventDefault();
    setTried(true);
    const inputs = form.current?.querySelectorAll("input") ?? [];
    const half = [...inputs].filter(({ validity }) => validity.badInput).map(({ name }) => name);
    setHalfTimes(half);
    if (lacksTopic || half.length > 0) return;
    const given = { ...wanted, from: secondsOf(draft.from), to: secondsOf(draft.to) };
    goWith(queryOf(given), "tasks", ...(isEverywhere ? [] : [wanted.topic]));
  };
  const plain = { autocomplete: "off", spellcheck: false } as const;
  const times = { type: "datetime-local", step: 1 } as const;
  return (
    <form ref={form} class="find" onSubmit={submit} noValidate>
      <label>
        {texts.find}
        <input
          type="search"
          {...plain}
          value={draft.q}
          onInput={(event) => change({ q: event.currentTarget.value })}
        />
      </label>
      <label>
        {texts.by}
        <select
          value={draft.by}
          onChange={(event) => change({ by: event.currentTarget.value as By })}
        >
          {searchable().map((one) => (
            <option value={one}>{texts.fields[one]}</option>
          ))}
        </select>
      </label>
      {!isEverywhere && (
        <>
          <label>
            {texts.topic}
            <input
              {...plain}
              required
              list="topics"
              value={draft.topic}
              aria-invalid={isTried && lacksTopic}
              onInput={(event) => change({ topic: event.currentTarget.value })}
            />
            <datalist id="topics">
              {topics.map((name) => (
                <option value={name} />
              ))}
            </datalist>
          </label>
          <label>
            {texts.state}
            <select
              value={draft.state}
              onChange={(event) => change({ state: event.currentTarget.value as TaskState })}
            >
              {TASK_STATES.map((one) => (
                <option value={one}>{t().states[one]}</option>
              ))}
            </select>
          </label>
          {hasPeriod(wanted) && (
            <>
              <label>
                {texts.from(zoneAt(draft.from))}
                <input
                  {...times}
                  name="from"
                  value={draft.from}
                  aria-invalid={isHalf("from")}
                  onInput={(event) => change({ from: event.currentTarget.value })}
                />
              </label>
              <label>
                {texts.to(zoneAt(draft.to))}
                <input
                  {...times}
                  name="to"
                  value={draft.to}
                  aria-invalid={isHalf("to")}
                  onInput={(event) => change({ to: event.currentTarget.value })}
                />
              </label>
            </>
          )}
          <label>
            {texts.order}
            <select
              value={draft.order}
              onChange={(event) =>
                change({ order: event.currentTarget.value as Filters["order"] })
              }
            >
              <option value="newest">{texts.newest}</option>
              <option value="oldest">{texts.oldest}</option>
            </select>
          </label>
        </>
      )}
      <button type="submit">{texts.show}</button>
      {isTried && lacksTopic && <p class="fault" role="alert">{texts.needsTopic}</p>}
      {halfTimes.length > 0 && <p class="fault" role="alert">{texts.halfTime}</p>}
    </form>
  );
}
