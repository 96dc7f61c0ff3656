import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<R> {
  name: string;
  /** What the heading shows in place of the name. */
  head?: ComponentChildren;
  cell: (row: R) => ComponentChildren;
  /** What the column is sorted by; without it, it cannot be sorted. */
  by?: (row: R) => string | number;
  isNumber?: boolean;
  /** Whether a narrow screen leaves it out. */
  isMinor?: boolean;
}

const classOf = ({ isNumber, isMinor }: { isNumber?: boolean; isMinor?: boolean }): string =>
  `${isNumber ? "number" : ""} ${isMinor ? "minor" : ""}`.trim();

interface Props<R> {
  label: string;
  columns: Column<R>[];
  rows: R[];
  id: (row: R) => string;
  /** The column that it is sorted by at first; without it, the order of `rows`. */
  sorted?: number;
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

/** A table that scrolls sideways, and sorts by its headings. */
export function Table<R>({ label, columns, rows, id, sorted }: Props<R>) {
  const [order, setOrder] = useState({ column: sorted ?? -1, isDown: false });
  const by = columns[order.column]?.by;
  const sign = order.isDown ? -1 : 1;
  const shown = by ? [...rows].sort((a, b) => sign * compare(by(a), by(b))) : rows;
  const sortBy = (column: number) =>
    setOrder({ column, isDown: order.column === column && !order.isDown });
  const direction = (column: number) =>
    order.column !== column ? "none" : order.isDown ? "descending" : "ascending";
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map(({ name, head, by, ...kind }, column) => (
              <th
                scope="col"
                class={classOf(kind)}
                {...(by && { "aria-sort": direction(column) })}
              >
                {by ? (
                  <button type="button" class="sort" onClick={() => sortBy(column)}>
                    {name}
                    <span aria-hidden="true">
                      {{ none: "", ascending: " ↑", descending: " ↓" }[direction(column)]}
                    </span>
                  </button>
                ) : (
                  (head ?? name)
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={id(row)}>
              {columns.map(({ cell, ...kind }) => (
                <td class={classOf(kind)}>{cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
