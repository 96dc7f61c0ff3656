import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { CallError, isAbort } from "../api/client";
import { isHidden, now } from "../state/clock";
import { dialog } from "../state/dialog";
import { needsToken } from "../state/token";
import { t } from "../text";
import { age } from "../view/format";
import { Failure } from "./failure";

/** How often a read is repeated that got no answer, in ms. */
const RETRY = 3000;

/** Whether the same call may succeed later. */
const isPassing = ({ status }: CallError): boolean => status === 0 || status === 503;

export interface Loaded<T> {
  data: T | null;
  error: CallError | null;
  /** When `data` was read, by the clock of this machine. */
  at: number;
  reload: () => Promise<void>;
}

/**
 * Reads something when `key` changes, and again `every` ms while the tab is shown and no dialog is
 * open. Late answers are dropped. `every` of 0 reads until there is an answer.
 */
export function useLoaded<T>(
  key: string,
  every: number,
  load: (signal: AbortSignal) => Promise<T>,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; at: number }>({
    key,
    data: null,
    at: 0,
  });
  const [error, setError] = useState<CallError | null>(null);
  const running = useRef<AbortController | null>(null);
  const current = useRef(load);
  current.current = load;

  const reload = useCallback(async () => {
    running.current?.abort();
    const own = (running.current = new AbortController());
    try {
      const data = await current.current(own.signal);
      if (own.signal.aborted) return;
      setState({ key, data, at: Date.now() });
      setError(null);
    } catch (failed) {
      if (own.signal.aborted || isAbort(failed)) return;
      if (failed instanceof CallError) setError(failed);
      else throw failed;
    }
  }, [key]);

  const isAsking = needsToken.value;
  useEffect(() => {
    if (isAsking) return;
    setError(null);
    void reload();
    return () => running.current?.abort();
  }, [reload, isAsking]);

  // What is read once is tried again until there is an answer.
  const period = every > 0 || !error || !isPassing(error) ? every : RETRY;
  useEffect(() => {
    if (isAsking || period === 0) return;
    const timer = setInterval(() => {
      if (!isHidden.peek() && dialog.peek() === null) void reload();
    }, period);
    return () => clearInterval(timer);
  }, [reload, period, isAsking]);

  return { data: state.key === key ? state.data : null, error, at: state.at, reload };
}

interface Props<T> {
  of: Loaded<T>;
  children: (data: T) => ComponentChildren;
}

/** What was read, its age, and why it could not be read again. */
export function Show<T>({ of, children }: Props<T>) {
  const { data, error, at } = of;
  return (
    <>
      {error && <Failure error={error} />}
      {data === null && !error && <p class="quiet" role="status" data-loading>{t().loading}</p>}
      {data !== null && (
        <>
          {children(data)}
          <p class="quiet small-text">{t().loaded(age(now.value - at))}</p>
        </>
      )}
    </>
  );
}
