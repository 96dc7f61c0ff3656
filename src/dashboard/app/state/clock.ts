// The time of this machine, and whether the tab is shown.
import { signal } from "@preact/signals";

/** Unix ms, each second while the tab is shown. */
export const now = signal(Date.now());

export const isHidden = signal(document.hidden);

document.addEventListener("visibilitychange", () => {
  isHidden.value = document.hidden;
  if (!document.hidden) now.value = Date.now();
});

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
