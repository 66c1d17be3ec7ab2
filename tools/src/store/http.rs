//! Requests of the object store's library, sent by the client that the command has anyway. It blocks: whoever calls has a thread for it.

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use std::time::Duration;

/// How long a server may take to begin its answer, if the settings (`AWS_READ_TIMEOUT`) do not say.
const ANSWER: Duration = Duration::from_secs(30);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How much longer a whole body may take, which is a few MiB at most.
const BODY: u32 = 4;

/// Makes clients.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let told = options.get_config_value(&ClientConfigKey::ReadTimeout);
        let answer = told.and_then(|text| seconds(&text)).unwrap_or(ANSWER);
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT.min(answer)))
            .timeout_send_body(Some(answer * BODY))
            .timeout_recv_response(Some(answer))
            .timeout_recv_body(Some(answer * BODY))
            .http_status_as_error(false)
            // A signature is for one address.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("strandline/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(HttpClient::new(Client(agent)))
    }
}

/// A duration as settings have it: `30s`, `2 seconds`, `500ms`.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" | "second" | "seconds" => Some(Duration::from_secs(number)),
        "m" | "minute" | "minutes" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

#[derive(Debug)]
struct Client(ureq::Agent);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let sent = if body.is_empty() {
            self.0.run(http::Request::from_parts(parts, ()))
        } else {
            self.0.run(http::Request::from_parts(parts, &body[..]))
        };
        let (parts, body) = sent.map_err(failed)?.into_parts();
        let bytes = body.into_with_config().limit(u64::MAX).read_to_vec().map_err(failed)?;
        Ok(HttpResponse::from_parts(parts, bytes.into()))
    }
}

/// What went wrong: the kind decides whether it is tried again.
fn failed(e: ureq::Error) -> HttpError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    let kind = match &e {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Io(io) if io.kind() == TimedOut => HttpErrorKind::Timeout,
        ureq::Error::Io(io) => match io.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => HttpErrorKind::Interrupted,
            _ => HttpErrorKind::Connect,
        },
        ureq::Error::Protocol(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_people_write_them() {
        let read = |text| seconds(text).map(|d| d.as_millis());
        assert_eq!(
            ["2s", "30", "1 second", "500ms", "2m"].map(read),
            [Some(2000), Some(30_000), Some(1000), Some(500), Some(120_000)]
        );
        assert_eq!(["", "soon", "1h"].map(read), [None; 3]);
    }
}
