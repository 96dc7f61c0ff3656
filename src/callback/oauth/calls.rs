//! Calls with a token, and the repeat of one that was answered with 401.

use std::sync::Arc;

use http::{Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{AccessToken, AfterRefusal, OAuth};
use crate::callback::client::Call;
use crate::callback::{Answer, Client};

impl Client {
    /// Makes a call with the service's token, and waits for the head of its response. If that is a
    /// 401, repeats the call once with another token, within the same deadline.
    pub(in crate::callback) async fn authorized(
        &self,
        oauth: &OAuth,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Answer> {
        let token = oauth.token().ok_or(Answer::NoToken)?;
        let response = self.answered(call, Some(&token), deadline).await?;
        if !is_refused(&response, &token) {
            return Ok(response);
        }
        match oauth.refused_until(&token, deadline).await {
            AfterRefusal::Count => Ok(response),
            AfterRefusal::GiveBack => Err(Answer::NoToken),
            AfterRefusal::Repeat(other) => {
                drop(response);
                let response = self.answered(call, Some(&other), deadline).await?;
                is_refused(&response, &other);
                Ok(response)
            }
        }
    }
}

/// Whether the receiver refused the token. Otherwise the token was good.
fn is_refused(response: &Response<Incoming>, token: &Arc<AccessToken>) -> bool {
    let is_refused = response.status() == StatusCode::UNAUTHORIZED;
    if !is_refused {
        token.was_taken();
    }
    is_refused
}
