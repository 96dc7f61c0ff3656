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

/** The longest read, in ms. A connection that was lost silently never ends it. */
const LONGEST = 60_000;

/** Whether the same call may succeed later. A proxy answers 502 or 504 for the service. */
const isPassing = ({ status }: CallError): boolean =>
  [0, 429, 502, 503, 504].includes(status);

export interface Loaded<T> {
  data: T | null;
  error: CallError | null;
  /** When `data` was read, by the clock of this machine. */
  at: number;
  reload: () => Promise<void>;
}

/**
 * Reads something when `key` changes, and again `every` ms after the previous read has ended, while
 * the tab is shown and no dialog is open. Late answers are dropped. `every` of 0 reads until there
 * is an answer. `isInDialog`: an open dialog does not stop it.
 */
export function useLoaded<T>(
  key: string,
  every: number,
  load: (signal: AbortSignal) => Promise<T>,
  isInDialog = false,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; at: number }>({
    key,
    data: null,
    at: 0,
  });
  const [error, setError] = useState<CallError | null>(null);
  const running = useRef<AbortController | null>(null);
  const current = useRef({ key, load });
  current.current = { key, load };

  const reload = useCallback(async () => {
    // An action that ends after its list was left must not cut off the read of the next list.
    if (current.current.key !== key) return;
    running.current?.abort();
    const own = (running.current = new AbortController());
    const longest = setTimeout(() => {
      own.abort();
      setError(new CallError(0, 0, ""));
    }, LONGEST);
    try {
      const data = await current.current.load(own.signal);
      if (own.signal.aborted) return;
      setState({ key, data, at: Date.now() });
      setError(null);
    } catch (failed) {
      if (own.signal.aborted || isAbort(failed)) return;
      if (failed instanceof CallError) setError(failed);
      else throw failed;
    } finally {
      clearTimeout(longest);
      if (running.current === own) running.current = null;
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
    let isOver = false;
    let timer: ReturnType<typeof setTimeout>;
    const wait = () => {
      if (!isOver) timer = setTimeout(tick, period);
    };
    const tick = () => {
      const isWanted = !isHidden.peek() && (isInDialog || dialog.peek() === null);
      // A read that runs is not cut off: a slow one would never end.
      if (isWanted && running.current === null) void reload().finally(wait);
      else wait();
    };
    wait();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [reload, period, isAsking, isInDialog]);

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
