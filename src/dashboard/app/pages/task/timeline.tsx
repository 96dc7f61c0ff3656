import type { Task } from "../../api/types";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { When } from "../../ui/parts";
import { duration } from "../../view/format";

/** What happened to a task, in time order. */
export function Timeline({ of: task }: { of: Task }) {
  const texts = t().task;
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">{texts.timeline}</h2>
      <ol class="timeline">
        <li>
          <When at={task.created_ms} /> <b>{texts.created}</b>
        </li>
        {task.log.map(({ attempt, started_ms, duration_ms, outcome, answer }) => (
          <li key={`${attempt}/${started_ms}`}>
            <When at={started_ms} /> <b>{texts.attempt(String(attempt))}</b>{" "}
            <span class="quiet">{texts.took(duration(duration_ms))}</span>
            {outcome != null && (
              <p>
                <Exact text={outcome} />
              </p>
            )}
            {answer != null && answer !== "" && (
              <details>
                <summary>{texts.answer}</summary>
                <pre tabIndex={0} dir="ltr" role="group" aria-label={texts.answer}>
                  <Exact text={answer} />
                </pre>
              </details>
            )}
          </li>
        ))}
        {task.finished_ms != null && (
          <li>
            <When at={task.finished_ms} /> <b>{t().states[task.state]}</b>
          </li>
        )}
      </ol>
      <p class="quiet small-text">{texts.logHelp}</p>
    </section>
  );
}
