import { useEffect, useRef, useState } from "preact/hooks";
import { CallError } from "../api/client";
import { type Asked, dialog, end } from "../state/dialog";
import { lateFailure, say } from "../state/notice";
import { t } from "../text";
import { Failure } from "./failure";
import { refusedOf } from "./refused";

/** The question that is open, if there is one. */
export function Dialog() {
  const question = dialog.value;
  return question && <Open question={question} key={question.id} />;
}

function Open({ question }: { question: Asked }) {
  const element = useRef<HTMLDialogElement>(null);
  const closed = useRef(new AbortController());
  const isRunning = useRef(false);
  const [, setRunning] = useState(false);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<CallError | null>(null);
  const { retype, isReady = () => true, progress = () => "" } = question;
  const inputs = question.inputs?.() ?? {};
  const refused = refusedOf(error, Object.keys(inputs));
  const isAllowed = (retype === undefined || typed === retype) && isReady() && !isRunning.current;
  const leave = () => {
    closed.current.abort();
    end(question);
  };
  const close = () => {
    if (error && progress() !== "") say(progress());
    leave();
  };
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      else document.querySelector<HTMLElement>("main h1")?.focus();
    };
  }, []);
  useEffect(() => {
    // The question is about the page before.
    const changed = () => {
      if (!isRunning.current) close();
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  });
  useEffect(() => {
    if (refused) document.getElementById(inputs[refused.field] ?? "")?.focus();
  }, [error]);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!isAllowed) return;
    isRunning.current = true;
    setRunning(true);
    setError(null);
    try {
      await question.run(closed.current.signal);
      leave();
    } catch (failed) {
      isRunning.current = false;
      setRunning(false);
      if (!(failed instanceof CallError)) throw failed;
      if (!closed.current.signal.aborted) {
        setError(failed);
        return;
      }
      if (progress() !== "") say(progress());
      lateFailure.value = { action: question.title, error: failed };
    }
  };
  return (
    <dialog ref={element} onClose={close} aria-labelledby="question">
      <form onSubmit={run} onInput={() => refused && setError(null)} noValidate>
        <h2 id="question">{question.title}</h2>
        <p>{question.text}</p>
        {question.more?.(refused)}
        {retype !== undefined && (
          <div class="labelled">
            <label for="retype">{t().retype(retype)}</label>
            <input
              id="retype"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </div>
        )}
        <p class="quiet small-text">{t().frozen}</p>
        <div role="status">{progress() !== "" && <p>{progress()}</p>}</div>
        {error && !refused && <Failure error={error} isChange />}
        <div class="buttons">
          <button type="button" onClick={close}>{t().cancel}</button>
          <button
            type="submit"
            class={question.isDangerous ? "danger" : "primary"}
            aria-disabled={!isAllowed}
          >
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
