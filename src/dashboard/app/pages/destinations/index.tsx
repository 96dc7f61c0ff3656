import { call } from "../../api/client";
import type { AnswerOf } from "../../api/types";
import { t } from "../../text";
import { Show, useLoaded } from "../../ui/loaded";
import { Ago } from "../../ui/parts";
import { Table } from "../../ui/table";
import { count, duration, number, percent } from "../../view/format";
import { Changes } from "./changes";
import { DestinationLink, isTroubled, LastError, State, Unharmed, Where } from "./parts";

/** All destinations, with holds. */
export function Destinations() {
  const loaded = useLoaded("destinations", 3000, (signal) =>
    call("/delay/destination/list", { sampled: true }, signal),
  );
  return (
    <Show of={loaded}>
      {(answer) => <List of={answer} reload={loaded.reload} />}
    </Show>
  );
}

interface ListProps {
  of: AnswerOf<"/delay/destination/list">;
  reload: () => Promise<void>;
}

function List({ of: { destinations, unharmed, as_of_ms }, reload }: ListProps) {
  const texts = t().destinations;
  const isExact = (as_of_ms ?? 0) > 0;
  if (destinations.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      {destinations.some(isTroubled) && <Unharmed of={unharmed} />}
      <Table
        label={t().pages.destinations}
        rows={destinations}
        id={({ sn }) => sn}
        columns={[
          { name: texts.destination, by: ({ sn }) => sn, cell: DestinationLink },
          {
            name: texts.state,
            cell: (destination) => (
              <>
                <State of={destination} /> <Where of={destination} />
              </>
            ),
          },
          {
            name: texts.waiting,
            isNumber: true,
            by: ({ waiting }) => waiting,
            cell: ({ waiting }) => count(waiting, !isExact),
          },
          {
            name: texts.overdue,
            isNumber: true,
            by: ({ overdue }) => overdue ?? 0,
            cell: ({ overdue }) => count(overdue ?? 0, !isExact),
          },
          {
            name: texts.inFlight,
            isMinor: true,
            isNumber: true,
            by: ({ in_flight }) => in_flight,
            cell: ({ in_flight, concurrency }) =>
              texts.ofLimit(number(in_flight), number(concurrency)),
          },
          {
            name: texts.failures,
            isMinor: true,
            isNumber: true,
            by: ({ recent: { calls, failures } }) => (calls === 0 ? 0 : failures / calls),
            cell: ({ recent: { calls, failures } }) =>
              calls === 0 ? "–" : percent(failures / calls, 1),
          },
          {
            name: texts.p99,
            isMinor: true,
            isNumber: true,
            by: ({ recent: { p99_ms } }) => p99_ms ?? 0,
            cell: ({ recent: { p99_ms } }) => (p99_ms == null ? "–" : duration(p99_ms)),
          },
          { name: texts.rate, isMinor: true, cell: ({ rate }) => rate ?? "–" },
          {
            name: texts.lastError,
            isMinor: true,
            cell: (destination) => <LastError of={destination} />,
          },
          {
            name: texts.action,
            isMinor: true,
            cell: (destination) => <Changes isSmall of={destination} reload={reload} />,
          },
        ]}
      />
      <p class="quiet small-text">
        {texts.note}{" "}
        {isExact && (
          <>
            {texts.counted}: <Ago at={as_of_ms ?? 0} />.
          </>
        )}
      </p>
    </>
  );
}
