import { useEffect } from "preact/hooks";
import { call } from "../../api/client";
import { ask, type Question } from "../../state/dialog";
import { say, unsay } from "../../state/notice";
import { may } from "../../state/session";
import { t } from "../../text";
import { Action } from "../../ui/parts";
import type { Shown } from "./parts";

interface Props {
  of: Shown;
  reload: () => Promise<void>;
  isSmall?: boolean;
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
      const isAlone = instances.length === 0;
      say(isAlone ? texts.probeDone(sn, t().breakers[breaker]) : texts.probeOnAll(sn));
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
