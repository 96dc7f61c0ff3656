import { call } from "../../api/client";
import type { Destination } from "../../api/types";
import { t } from "../../text";
import { Show, useLoaded } from "../../ui/loaded";
import { Table } from "../../ui/table";
import { number } from "../../view/format";
import { Changes } from "./changes";
import { Breaker, DestinationLink, LastError, State } from "./parts";

/** All destinations, with holds. */
export function Destinations() {
  const loaded = useLoaded("destinations", 3000, (signal) =>
    call("/delay/destination/list", {}, signal),
  );
  return (
    <Show of={loaded}>
      {({ destinations }) => <List destinations={destinations} reload={loaded.reload} />}
    </Show>
  );
}

interface ListProps {
  destinations: Destination[];
  reload: () => Promise<void>;
}

function List({ destinations, reload }: ListProps) {
  const texts = t().destinations;
  if (destinations.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      <Table
        label={t().pages.destinations}
        rows={destinations}
        id={({ sn }) => sn}
        columns={[
          { name: texts.destination, by: ({ sn }) => sn, cell: DestinationLink },
          { name: texts.state, cell: (destination) => <State of={destination} /> },
          {
            name: texts.waiting,
            isNumber: true,
            by: ({ waiting }) => waiting,
            cell: ({ waiting }) => number(waiting),
          },
          {
            name: texts.breaker,
            by: ({ breaker }) => breaker,
            cell: ({ breaker }) => <Breaker of={breaker} />,
          },
          {
            name: texts.inFlight,
            isNumber: true,
            by: ({ in_flight }) => in_flight,
            cell: ({ in_flight, concurrency }) =>
              texts.ofLimit(number(in_flight), number(concurrency)),
          },
          { name: texts.rate, cell: ({ rate }) => rate ?? "–" },
          { name: texts.lastError, cell: (destination) => <LastError of={destination} /> },
          {
            name: texts.action,
            cell: (destination) => <Changes isSmall of={destination} reload={reload} />,
          },
        ]}
      />
      <p class="quiet small-text">{texts.note}</p>
    </>
  );
}
