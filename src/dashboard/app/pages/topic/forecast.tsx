import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { AnswerOf } from "../../api/types";
import { t } from "../../text";
import { Chart } from "../../ui/chart";
import { Show, useLoaded } from "../../ui/loaded";
import { Action } from "../../ui/parts";
import { Table } from "../../ui/table";
import { number } from "../../view/format";
import { moment } from "../../view/time";

type Steps = AnswerOf<"/delay/topic/forecast">;
type Span = "hour" | "day" | "week";

/** The periods that a span is divided into, as on the page of all topics. */
const SPANS: Record<Span, { step: string; steps: number }> = {
  hour: { step: "5m", steps: 12 },
  day: { step: "1h", steps: 24 },
  week: { step: "6h", steps: 28 },
};

/** When the tasks of a topic fall due. The call looks at all of them, so it is not repeated. */
export function TopicForecast({ topic }: { topic: string }) {
  const [span, setSpan] = useState<Span>("day");
  const loaded = useLoaded(`${topic}/${span}`, 0, (signal) =>
    call("/delay/topic/forecast", { topic, ...SPANS[span] }, signal),
  );
  const texts = t().forecast;
  return (
    <section aria-labelledby="forecast" data-forecast>
      <div class="heading">
        <h2 id="forecast">{t().pages.forecast}</h2>
        <label>
          <span class="quiet">{texts.span}</span>{" "}
          <select value={span} onChange={(event) => setSpan(event.currentTarget.value as Span)}>
            {(Object.keys(SPANS) as Span[]).map((name) => (
              <option value={name}>{texts.spans[name]}</option>
            ))}
          </select>
        </label>
      </div>
      <Show of={loaded}>{(steps) => <Shown of={steps} />}</Show>
      <Action name={t().reload} run={() => void loaded.reload()} />
    </section>
  );
}

function Shown({ of: { now_ms, overdue, steps } }: { of: Steps }) {
  const texts = t().forecast;
  const starts = [now_ms, ...steps.map(({ until_ms }) => until_ms)];
  const bars = steps.map(({ count }) => count);
  const sum = bars.reduce((all, count) => all + count, 0);
  return (
    <>
      <p>{texts.ofTopic(number(overdue), number(sum))}</p>
      {sum > 0 && (
        <>
          <Chart
            title={texts.byTime}
            times={starts.map((at) => at / 1000)}
            lines={[{ name: texts.tasks, color: 1, values: bars, bars }]}
            text={(value) => number(value, value < 10 ? 1 : 0)}
            first
          />
          <details>
            <summary>{texts.table}</summary>
            <Table
              label={texts.byTime}
              rows={bars.map((count, at) => ({ count, at }))}
              id={({ at }) => String(at)}
              columns={[
                { name: texts.from, cell: ({ at }) => moment(starts[at] ?? 0) },
                { name: texts.tasks, isNumber: true, cell: ({ count }) => number(count) },
              ]}
            />
          </details>
        </>
      )}
    </>
  );
}
