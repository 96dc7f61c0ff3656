import { CallError } from "../api/client";
import { t } from "../text";
import { Exact } from "./exact";

/** What a failed call means for the user. `isChange`: the call changes something. */
function meaning(error: CallError, isChange: boolean): string {
  const texts = t().errors;
  switch (error.status) {
    case 0:
      return isChange ? texts.unconfirmed : texts.offline;
    case 403:
      return texts.forbidden;
    case 404:
      return texts.notFound;
    case 503:
      return isChange ? texts.unconfirmed : texts.unavailable;
    default:
      return error.message === "" ? texts.other(error.status) : (texts.codes[error.code] ?? "");
  }
}

interface Props {
  error: CallError;
  isChange?: boolean;
}

/** Why a call failed, with the message of the service. */
export function Failure({ error, isChange = false }: Props) {
  const said = meaning(error, isChange);
  return (
    <div class="notice bad" role="alert">
      {said !== "" && <p>{said}</p>}
      {error.message !== "" && (
        <p>
          <Exact text={t().errors.details(error.message)} />
        </p>
      )}
      {error.requestId && <p class="quiet">{t().errors.requestId(error.requestId)}</p>}
    </div>
  );
}
