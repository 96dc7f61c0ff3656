import { useEffect, useRef, useState } from "preact/hooks";
import { CallError } from "../api/client";
import { dialog, type Question } from "../state/dialog";
import { t } from "../text";
import { Failure } from "./failure";

/** The question that is open, if there is one. */
export function Dialog() {
  const question = dialog.value;
  return question && <Open question={question} key={question.title} />;
}

function Open({ question }: { question: Question }) {
  const element = useRef<HTMLDialogElement>(null);
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const close = () => {
    dialog.value = null;
  };
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const run = async () => {
    setRunning(true);
    try {
      await question.run();
      close();
    } catch (failed) {
      setRunning(false);
      if (failed instanceof CallError) setError(failed);
    }
  };
  return (
    <dialog ref={element} onClose={close} aria-labelledby="question">
      <h2 id="question">{question.title}</h2>
      <p>{question.text}</p>
      <p class="quiet">{t().frozen}</p>
      {error && <Failure error={error} isChange />}
      <div class="buttons">
        <button type="button" onClick={close}>{t().cancel}</button>
        <button type="button" class="primary" disabled={isRunning} onClick={run}>
          {question.action}
        </button>
      </div>
    </dialog>
  );
}
