import { useState } from "preact/hooks";
import { t } from "../text";

/** Browsers have `navigator.clipboard` only over https and on localhost. */
async function copyText(text: string): Promise<boolean> {
  if (window.isSecureContext && navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // The older way may still work.
    }
  }
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isDone;
}

interface Props {
  /** What is copied; it is written when the button is pressed. */
  text: () => string;
  name?: string;
}

export function Copy({ text, name }: Props) {
  const [isDone, setDone] = useState<boolean | null>(null);
  const copy = async () => {
    setDone(await copyText(text()));
    setTimeout(() => setDone(null), 2000);
  };
  const said = isDone === null ? (name ?? t().copy) : isDone ? t().copied : t().notCopied;
  return (
    <button type="button" class={name === undefined ? "small" : ""} onClick={copy}>
      <span aria-live="polite">{said}</span>
    </button>
  );
}
