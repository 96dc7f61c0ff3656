// Lets the tabs of a browser share one live stream: browsers open at most six connections to a host
// over HTTP/1.1, so six streams would leave none for other calls. One tab leads: it reads the
// stream, and sends each event to the others. If it is silent, another one takes over.
//
// `BroadcastChannel` works over plain HTTP, where Web Locks do not exist.
import type { Connection } from "./live";
import type { Overview } from "./types";

export interface Beat {
  connection: Connection;
  overview: Overview | null;
}

type Message = { kind: "ask" } | { kind: "bye" } | ({ kind: "beat"; from: string } & Beat);

/** How long a new tab waits for a leader, in ms. */
const ANSWER = 150;

/** Tabs that would all take over in the same moment are spread over so many ms. */
const SPREAD = 500;

/** The longest silence of a leader, in ms. */
const SILENCE = 3500;

/** How often a leader sends something, in ms. */
const INTERVAL = 1000;

interface Roles {
  /** Begins to read the stream. Returns how to stop. */
  lead: () => () => void;
  /** What the leader sends. */
  now: () => Beat;
  /** Takes what the leader has sent. */
  follow: (beat: Beat) => void;
}

export interface Tab {
  /** Sends the present beat, if this tab leads. */
  tell: () => void;
  leave: () => void;
}

/** Takes part until `leave`. */
export function shareStream({ lead, now, follow }: Roles): Tab {
  const own = Array.from(crypto.getRandomValues(new Uint32Array(2)), String).join("-");
  // Another service may have the same origin, below another path.
  const channel = new BroadcastChannel(`delayd.live ${location.pathname}`);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stop: (() => void) | null = null;

  const send = (message: Message) => channel.postMessage(message);
  const tell = () => {
    if (stop) send({ kind: "beat", from: own, ...now() });
  };
  const takeOverAfter = (ms: number) => {
    clearTimeout(timer);
    timer = setTimeout(takeOver, ms);
  };
  const takeOver = () => {
    stop = lead();
    beat();
  };
  const beat = () => {
    tell();
    timer = setTimeout(beat, INTERVAL);
  };

  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "ask") tell();
    else if (data.kind === "bye") {
      if (!stop) takeOverAfter(Math.random() * SPREAD);
    } else if (stop && data.from > own) {
      // Both lead. This tab goes on, and the other stops when it hears this.
      tell();
    } else {
      stop?.();
      stop = null;
      follow(data);
      takeOverAfter(SILENCE + Math.random() * SPREAD);
    }
  };
  send({ kind: "ask" });
  takeOverAfter(ANSWER);

  return {
    tell,
    leave: () => {
      clearTimeout(timer);
      stop?.();
      if (stop) send({ kind: "bye" });
      channel.close();
    },
  };
}
