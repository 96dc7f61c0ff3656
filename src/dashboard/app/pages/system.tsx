import { call } from "../api/client";
import type { Instance } from "../api/types";
import { may, who } from "../state/session";
import { token, useToken } from "../state/token";
import { t } from "../text";
import { Show, useLoaded } from "../ui/loaded";
import { Ago, Badge, Field, When } from "../ui/parts";
import { Table } from "../ui/table";
import { bytes, number, percent } from "../view/format";
import { Health } from "./health";

/** The instances, and the access of the caller. */
export const System = () => (
  <>
    {may.readAll() && (
      <>
        <Instances />
        <Health />
      </>
    )}
    <Access />
  </>
);

function Instances() {
  const loaded = useLoaded("instances", 3000, (signal) =>
    call("/delay/instance/list", {}, signal),
  );
  return (
    <section aria-labelledby="instances">
      <h2 id="instances">{t().system.instances}</h2>
      <Show of={loaded}>{({ instances }) => <List instances={instances} />}</Show>
    </section>
  );
}

function List({ instances }: { instances: Instance[] }) {
  const texts = t().system;
  return (
    <Table
      label={texts.instances}
      rows={instances}
      id={({ id }) => id}
      columns={[
        {
          name: texts.id,
          by: ({ id }) => id,
          cell: ({ id, answers }) => (
            <>
              <code>{id}</code> {answers && <Badge tone="plain">{texts.answers}</Badge>}
            </>
          ),
        },
        {
          name: texts.name,
          isMinor: true,
          by: ({ name }) => name,
          cell: ({ name }) => <bdi>{name}</bdi>,
        },
        { name: texts.version, by: ({ version }) => version, cell: ({ version }) => version },
        {
          name: texts.address,
          isMinor: true,
          cell: ({ address }) => <bdi class="whole">{address}</bdi>,
        },
        {
          name: texts.workers,
          isMinor: true,
          cell: ({ workers }) => (workers ? t().yes : t().no),
        },
        {
          name: texts.inFlight,
          isMinor: true,
          isNumber: true,
          by: ({ in_flight }) => in_flight,
          cell: ({ in_flight }) => number(in_flight),
        },
        {
          name: texts.failing,
          isMinor: true,
          isNumber: true,
          by: ({ failing }) => failing,
          cell: ({ failing }) => number(failing),
        },
        {
          name: texts.cpu,
          isMinor: true,
          isNumber: true,
          by: ({ cpu }) => cpu,
          cell: ({ cpu }) => percent(cpu, 1),
        },
        {
          name: texts.memory,
          isMinor: true,
          isNumber: true,
          by: ({ memory_bytes }) => memory_bytes,
          cell: ({ memory_bytes }) => bytes(memory_bytes),
        },
        {
          name: texts.started,
          isMinor: true,
          by: ({ started_ms }) => started_ms,
          cell: ({ started_ms }) => <When at={started_ms} />,
        },
        { name: texts.seen, cell: ({ seen_ms }) => <Ago at={seen_ms} /> },
      ]}
    />
  );
}

function Access() {
  const caller = who.value;
  const texts = t().system;
  if (!caller) return null;
  return (
    <section aria-labelledby="access">
      <h2 id="access">{texts.caller}</h2>
      {caller.token == null && <p>{texts.noToken}</p>}
      <dl class="fields">
        <Field name={texts.tokenName}>{caller.token ?? t().none}</Field>
        <Field name={texts.scopes}>{caller.scopes.join(", ")}</Field>
        <Field name={texts.topics}>{caller.topics.join(", ")}</Field>
      </dl>
      {token.value !== null && (
        <button type="button" onClick={() => useToken(null, false)}>{t().token.forget}</button>
      )}
    </section>
  );
}
