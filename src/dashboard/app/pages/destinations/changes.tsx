import { useEffect } from "preact/hooks";
import { call } from "../../api/client";
import type { AnswerOf } from "../../api/types";
import { ask, type Question } from "../../state/dialog";
import { say, unsay } from "../../state/notice";
import { may } from "../../state/session";
import { t } from "../../text";
import { Action } from "../../ui/parts";
import type { Shown } from "./parts";

type Each = AnswerOf<"/delay/destination/probe">["instances"];

interface Props {
  of: Shown;
  reload: () => Promise<void>;
  isSmall?: boolean;
}

/** How often, and how many times, it asks whether the others have heard of a probe. In ms. */
const ASKED_EVERY = 250;
const ASKED = 12;

/** Says the breaker of each instance as soon as all have heard of a probe, or after some time. */
async function sayEach(sn: string, before: Each) {
  const hasHeard = (now: Each) =>
    before.every((old) => {
      const one = now.find(({ instance }) => instance === old.instance);
      return old.answers || !one || (one.probed_ms ?? 0) > (old.probed_ms ?? 0);
    });
  let now = before;
  for (let asked = 0; asked < ASKED && !hasHeard(now); asked++) {
    await new Promise((done) => setTimeout(done, ASKED_EVERY));
    now = (await call("/delay/destination/get", { sn })).instances;
  }
  const each = now.map(({ name, instance, breaker }) => {
    return `${name} ${instance}: ${t().breakers[breaker]}`;
  });
  const { probeOnEach, probeOnSome } = t().destinations;
  say((hasHeard(now) ? probeOnEach : probeOnSome)(sn, each.join(", ")));
}

/** What can be done with a destination in its present state. */
function questionsOf({ of: { sn, held, configured, breaker, retry_after_ms }, reload }: Props) {
  const texts = t().destinations;
  const hold: Question = {
    title: texts.holdTitle(sn),
    text: texts.holdText,
    action: texts.hold,
    run: () => call("/delay/destination/hold", { sn }).then(reload),
  };
  const release: Question = {
    title: texts.releaseTitle(sn),
    text: texts.releaseText,
    action: texts.release,
    run: () => call("/delay/destination/release", { sn }).then(reload),
  };
  const probe: Question = {
    title: texts.probeTitle(sn),
    text: texts.probeText,
    action: texts.probe,
    run: async () => {
      const { breaker, instances } = await call("/delay/destination/probe", { sn });
      if (instances.length === 0) say(texts.probeDone(sn, t().breakers[breaker]));
      else await sayEach(sn, instances);
      await reload();
    },
  };
  return [
    ...(held ? [] : [hold]),
    ...(held || retry_after_ms != null ? [release] : []),
    ...(configured && breaker === "open" ? [probe] : []),
  ];
}

export function Changes({ isSmall = false, ...props }: Props) {
  const { sn, breaker } = props.of;
  useEffect(() => {
    const { breakers, destinations } = t();
    if (breaker === "closed") unsay(destinations.probeDone(sn, breakers.half_open));
  }, [breaker]);
  if (!may.changeDestinations()) return null;
  return (
    <div class={isSmall ? "buttons" : "buttons actions"}>
      {questionsOf(props).map((question) => (
        <Action
          key={question.action}
          isSmall={isSmall}
          name={question.action}
          on={sn}
          run={() => ask(question)}
        />
      ))}
    </div>
  );
}
