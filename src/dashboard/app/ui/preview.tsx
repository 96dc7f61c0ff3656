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

/** What an action would do, read once when the dialog opens, or until there is an answer. */
export function Preview<T>({ load, into, children }: Props<T>) {
  const read = async (signal: AbortSignal) => {
    const found = await load(signal);
    into.value = found;
    return found;
  };
  const { data, error } = useLoaded("preview", 0, read, true);
  return (
    <div class="preview" role="status">
      {error && <Failure error={error} />}
      {data === null && !error && <p class="quiet" data-loading>{t().loading}</p>}
      {data !== null && children(data)}
    </div>
  );
}
