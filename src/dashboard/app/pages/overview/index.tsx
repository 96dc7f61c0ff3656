import { connection, overview, sampleAge } from "../../api/live";
import { now } from "../../state/clock";
import { href, hrefWith } from "../../state/route";
import { t } from "../../text";
import { Table } from "../../ui/table";
import { age, number } from "../../view/format";
import type { Overview as Shown } from "../../api/types";
import { DestinationLink, State } from "../destinations/parts";
import { Backlog, Objective, Overdue, Rates } from "./figures";
import { Graphs } from "./graphs";
import { problemsOf } from "./problems";

/** The state of the deployment, from the live stream. */
export function Overview() {
  const shown = overview.value;
  const isSampled = shown !== null && shown.at_ms > 0;
  return (
    <>
      {!isSampled && <p role="status" class="quiet" data-loading>{t().overview.waiting}</p>}
      {isSampled && (
        <>
          <Problems of={shown} />
          <Rates of={shown} />
          <div class="columns">
            <Objective of={shown} />
            <Backlog of={shown} />
            <Overdue of={shown} />
            <Busiest of={shown} />
          </div>
        </>
      )}
      <Graphs />
    </>
  );
}

function Problems({ of }: { of: Shown }) {
  const problems = problemsOf(of, sampleAge(now.value) ?? 0);
  const behind = of.at_ms - of.oldest_ms;
  return (
    <section aria-labelledby="wrong" class="problems">
      <h2 id="wrong">{t().overview.wrong}</h2>
      {connection.value === "lost" && <p class="notice bad">{t().errors.offline}</p>}
      {problems.length === 0 && <p class="notice good">{t().overview.fine}</p>}
      <ul class="plain-list">
        {problems.map(({ tone, text, page, topic, more }) => (
          <li class={`notice ${tone}`} key={text}>
            {topic ? (
              <>
                <a href={href("topics", topic)}>{text}</a>{" "}
                <a href={hrefWith({ order: "oldest" }, "tasks", topic)}>{t().problems.tasks}</a>
              </>
            ) : page ? (
              <a href={href(page)}>{text}</a>
            ) : (
              text
            )}
            {more && <span class="quiet"> {more}</span>}
          </li>
        ))}
      </ul>
      {behind > 2000 && (
        <p class="quiet small-text">{t().overview.oldestFigure(age(behind))}</p>
      )}
    </section>
  );
}

function Busiest({ of }: { of: Shown }) {
  const texts = t().destinations;
  const title = t().overview.busiest;
  return (
    <section aria-labelledby="busiest">
      <h2 id="busiest">{title}</h2>
      <Table
        label={title}
        rows={of.destinations}
        id={({ sn }) => sn}
        columns={[
          { name: texts.destination, cell: ({ sn }) => <DestinationLink sn={sn} /> },
          { name: texts.waiting, isNumber: true, cell: ({ waiting }) => number(waiting) },
          { name: texts.overdue, isNumber: true, cell: ({ overdue }) => number(overdue) },
          { name: texts.state, cell: (destination) => <State of={destination} /> },
        ]}
      />
      {of.more_destinations > 0 && (
        <p>
          <a href={href("destinations")}>{t().overview.more(number(of.more_destinations))}</a>
        </p>
      )}
    </section>
  );
}
