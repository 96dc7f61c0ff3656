import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Failure } from "./failure";
import { useLoaded } from "./loaded";
import { t } from "../text";

interface Props<T> {
  load: (signal: AbortSignal) => Promise<T>;
  /** Gets what was read, so that the dialog knows that it is there. */
  into: Signal<T | null>;
  children: (data: T) => ComponentChildren;
}

/** What an action would do, read once when the dialog opens. */
export function Preview<T>({ load, into, children }: Props<T>) {
  const { data, error } = useLoaded("preview", 0, async (signal) => {
    const read = await load(signal);
    into.value = read;
    return read;
  });
  return (
    <div class="preview" role="status">
      {error && <Failure error={error} />}
      {data === null && !error && <p class="quiet" data-loading>{t().loading}</p>}
      {data !== null && children(data)}
    </div>
  );
}
