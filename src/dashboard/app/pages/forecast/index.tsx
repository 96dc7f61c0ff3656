import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { ForecastFigures, Forecasts, ServiceForecast } from "../../api/types";
import { t } from "../../text";
import { Show, useLoaded } from "../../ui/loaded";
import { Badge } from "../../ui/parts";
import { Table } from "../../ui/table";
import { isReady, State } from "../destinations/parts";
import { count, duration, number } from "../../view/format";
import { Buckets } from "./buckets";
import { PULLED, nameOf, rate, within } from "./figures";

type Span = Forecasts["span"];

const SPANS: Span[] = ["hour", "day", "week"];

/** What falls due in the next hour, day or week. */
export function Forecast() {
  const [span, setSpan] = useState<Span>("day");
  // The service itself counts again after 10 s at the earliest.
  const loaded = useLoaded(`forecast/${span}`, 10_000, (signal) =>
    call("/delay/forecast", { span }, signal),
  );
  const texts = t().forecast;
  return (
    <>
      <label>
        <span class="quiet">{texts.span}</span>{" "}
        <select value={span} onChange={(event) => setSpan(event.currentTarget.value as Span)}>
          {SPANS.map((name) => (
            <option value={name}>{texts.spans[name]}</option>
          ))}
        </select>
      </label>
      <Show of={loaded}>{(forecasts) => <Shown of={forecasts} />}</Show>
    </>
  );
}

function Shown({ of: forecasts }: { of: Forecasts }) {
  const { complete, topics, topics_seen, services, more_services } = forecasts;
  const texts = t().forecast;
  return (
    <>
      {!complete && (
        <p role="status">
          <Badge tone="warn">{texts.incomplete(number(topics_seen), number(topics))}</Badge>
        </p>
      )}
      <Drain of={forecasts} />
      <Buckets of={forecasts} />
      {services.length > 0 && <Services services={services} />}
      {more_services > 0 && <p class="quiet">{texts.moreServices(number(more_services))}</p>}
      <p class="quiet small-text">{texts.note}</p>
    </>
  );
}

/** When no task is overdue any more, in sentences. */
function Drain({ of: { total, services, complete } }: { of: Forecasts }) {
  const texts = t().forecast;
  const pulled = services.find(({ sn }) => sn === PULLED)?.figures.overdue ?? 0;
  const overdue = total.overdue - pulled;
  const amount = count(overdue, !complete);
  const blocked = services.filter((service) => !isReady(service) && service.figures.overdue > 0);
  const drained = () => {
    if (overdue === 0) return complete ? texts.noneOverdue : texts.noneSeenOverdue;
    if (total.drain_ms != null) return texts.drained(amount, duration(total.drain_ms));
    return total.calls_per_second == null ? texts.unknown(amount) : texts.notDrained(amount);
  };
  return (
    <div data-drain>
      <p>
        {drained()}
        {pulled > 0 && ` ${texts.pulledOverdue(count(pulled, !complete))}`}
      </p>
      {blocked.length > 0 && (
        <p>{texts.blocked(blocked.map(({ sn }) => sn).join(", "))}</p>
      )}
    </div>
  );
}

function Services({ services }: { services: ServiceForecast[] }) {
  const texts = t().forecast;
  const drained = ({ sn, figures: { drain_ms } }: ServiceForecast) =>
    sn === PULLED || drain_ms == null ? "–" : duration(drain_ms);
  const column = (name: string, of: (figures: ForecastFigures) => number) => ({
    name,
    isNumber: true,
    by: ({ figures }: ServiceForecast) => of(figures),
    cell: ({ figures }: ServiceForecast) => count(of(figures), figures.cut),
  });
  return (
    <section aria-labelledby="services">
      <h2 id="services">{texts.byService}</h2>
      <Table
        label={texts.byService}
        rows={services}
        id={({ sn }) => sn}
        columns={[
          {
            name: texts.service,
            by: ({ sn }) => sn,
            cell: (service) => (
              <>
                <bdi>{nameOf(service.sn)}</bdi>{" "}
                {service.sn !== PULLED && <State of={service} />}
              </>
            ),
          },
          column(texts.overdue, ({ overdue }) => overdue),
          column(texts.within, within),
          { ...column(texts.later, ({ rest }) => rest), isMinor: true },
          {
            name: texts.perSecond,
            isMinor: true,
            isNumber: true,
            cell: ({ figures }) => rate(figures.calls_per_second),
          },
          { name: texts.drainedIn, isNumber: true, cell: drained },
        ]}
      />
    </section>
  );
}
