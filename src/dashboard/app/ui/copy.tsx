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
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

export function Copy({ text }: { text: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    setDone(await copyText(text));
    setTimeout(() => setDone(false), 2000);
  };
  return (
    <button type="button" class="small" onClick={copy}>
      <span aria-live="polite">{isDone ? t().copied : t().copy}</span>
    </button>
  );
}
