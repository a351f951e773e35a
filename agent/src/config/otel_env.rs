//! The `OTEL_*` variables, as the OpenTelemetry specification defines them.
//!
//! In: a look-up of variables. Out: the exporters' configuration, and every problem at once.
//! What can go wrong: each problem names the variable, its value and the remedy; a header's value is never repeated,
//! since it may be a secret. An empty variable is an unset one.

use std::path::PathBuf;
use std::time::Duration;

use super::{ExportConfig, OtlpConfig};

/// Reads the variables over what the file says. With problems, what they concern stays as it was.
pub fn read(lookup: impl Fn(&str) -> Option<String>, base: ExportConfig) -> (ExportConfig, Vec<String>) {
    let mut env = Env { lookup: &lookup, problems: Vec::new() };
    let mut attributes = env.pairs("OTEL_RESOURCE_ATTRIBUTES");
    let named = attributes.iter().position(|(name, _)| name == "service.name");
    let named = named.map(|index| attributes.remove(index).1);
    let config = ExportConfig {
        otlp: env.otlp(base.otlp),
        metric_interval: env.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", base.metric_interval),
        service_name: env.get("OTEL_SERVICE_NAME").or(named).unwrap_or(base.service_name),
        resource_attributes: attributes,
        ..base
    };
    (config, env.problems)
}

/// Checks the URL of a collector's gRPC receiver.
///
/// # Errors
/// A text for people.
pub fn endpoint(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority =
        rest.and_then(|rest| rest.split('/').next()).filter(|a| !a.is_empty() && !a.starts_with(':'));
    let plain = authority.is_some_and(|a| a.bytes().all(|b| b.is_ascii_graphic()) && !a.contains('@'));
    plain.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "{}: must be http://HOST:PORT or https://HOST:PORT, without user or password",
            without_secret(text)
        )
    })
}

/// The text without what stands before an `@`: it may be a password.
fn without_secret(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"))
}

struct Env<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

impl Env<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn problem(&mut self, name: &str, value: &str, remedy: &str) {
        self.problems.push(format!("{name}={value:?}: {remedy}"));
    }

    fn otlp(&mut self, base: Option<OtlpConfig>) -> Option<OtlpConfig> {
        let endpoint = self.endpoint().or(base.map(|base| base.endpoint));
        for name in ["", "METRICS_", "LOGS_"].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}PROTOCOL")) {
            if let Some(protocol) = self.get(&name).filter(|protocol| protocol != "grpc") {
                self.problem(&name, &protocol, "only grpc is spoken here; set it to grpc, and the endpoint to the collector's gRPC port (4317)");
            }
        }
        self.single_signals();
        let gzip = self.gzip();
        let timeout = self.milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", OtlpConfig::TIMEOUT);
        let headers = self.pairs("OTEL_EXPORTER_OTLP_HEADERS");
        let client_identity = self.client_identity();
        let ca_file = self.get("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from);
        if self.flag("OTEL_SDK_DISABLED") || self.exporters_off() {
            return None;
        }
        Some(OtlpConfig { headers, timeout, gzip, ca_file, client_identity, ..OtlpConfig::to(endpoint?) })
    }

    /// One collector takes both signals; the variables of single signals are taken where they agree.
    fn endpoint(&mut self) -> Option<String> {
        let both = self.get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let of = |env: &Self, name: &str| env.get(name).or_else(|| both.clone());
        let metrics = of(self, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
        let logs = of(self, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT");
        let insecure = self.flag("OTEL_EXPORTER_OTLP_INSECURE");
        if metrics != logs {
            let value = logs.or(metrics).unwrap_or_default();
            self.problem(
                "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or _METRICS_ENDPOINT",
                &value,
                "metrics and logs go to one collector; set OTEL_EXPORTER_OTLP_ENDPOINT alone",
            );
            return None;
        }
        let mut text = metrics?;
        if !text.contains("://") {
            // Without a scheme the specification leaves the choice to the variable for it, whose default is TLS.
            text = format!("{}://{text}", if insecure { "http" } else { "https" });
        }
        endpoint(&text).map_err(|e| self.problems.push(format!("OTEL_EXPORTER_OTLP_ENDPOINT={e}"))).ok()
    }

    /// Both signals go over one configuration: what is set for one of them alone would have no effect, which nobody
    /// would notice before it matters.
    fn single_signals(&mut self) {
        const SETTINGS: &[&str] = &[
            "HEADERS",
            "TIMEOUT",
            "COMPRESSION",
            "CERTIFICATE",
            "CLIENT_CERTIFICATE",
            "CLIENT_KEY",
            "INSECURE",
        ];
        for (signal, setting) in
            ["LOGS", "METRICS"].into_iter().flat_map(|s| SETTINGS.iter().map(move |of| (s, of)))
        {
            let general = format!("OTEL_EXPORTER_OTLP_{setting}");
            let name = format!("OTEL_EXPORTER_OTLP_{signal}_{setting}");
            let Some(value) = self.get(&name).filter(|value| self.get(&general).as_ref() != Some(value))
            else {
                continue;
            };
            let remedy = format!("metrics and logs are sent alike; set {general} instead");
            if *setting == "HEADERS" {
                self.problems.push(format!("{name}: {remedy}")); // the value may be a secret
            } else {
                self.problem(&name, &value, &remedy);
            }
        }
    }

    fn gzip(&mut self) -> bool {
        let name = "OTEL_EXPORTER_OTLP_COMPRESSION";
        match self.get(name).as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                self.problem(name, other, "set it to gzip or none");
                false
            }
        }
    }

    fn client_identity(&mut self) -> Option<(PathBuf, PathBuf)> {
        let (certificate, key) = ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_KEY");
        match (self.get(certificate), self.get(key)) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(value), None) => {
                self.problem(
                    certificate,
                    &value,
                    "a client certificate needs its key; set OTEL_EXPORTER_OTLP_CLIENT_KEY too",
                );
                None
            }
            (None, Some(value)) => {
                self.problem(
                    key,
                    &value,
                    "a client key needs its certificate; set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE too",
                );
                None
            }
        }
    }

    fn exporters_off(&mut self) -> bool {
        let names = ["OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"];
        let chosen = names.map(|name| self.get(name).unwrap_or_else(|| "otlp".to_owned()));
        if chosen.iter().all(|exporter| exporter == "none") {
            return true;
        }
        for (name, exporter) in names.into_iter().zip(&chosen) {
            if exporter != "otlp" {
                self.problem(
                    name,
                    exporter,
                    "set it to otlp, or both OTEL_METRICS_EXPORTER and OTEL_LOGS_EXPORTER to none",
                );
            }
        }
        false
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.get(name) {
            Some(value) if value.eq_ignore_ascii_case("true") => true,
            Some(value) if !value.eq_ignore_ascii_case("false") => {
                self.problem(name, &value, "set it to true or false");
                false
            }
            _ => false,
        }
    }

    fn milliseconds(&mut self, name: &str, default: Duration) -> Duration {
        let Some(value) = self.get(name) else { return default };
        match value.parse() {
            Ok(ms) if (1..=86_400_000).contains(&ms) => Duration::from_millis(ms),
            _ => {
                self.problem(name, &value, "set it to whole milliseconds from 1 to 86400000, without a unit");
                default
            }
        }
    }

    /// `name=value,name=value` with percent-encoded values, as W3C Baggage has it. One wrong pair makes all wrong: the
    /// specification forbids to guess.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.get(name).unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut pairs = Vec::new();
        for (index, part) in parts.enumerate() {
            let pair = part.split_once('=').and_then(|(key, value)| {
                let key = percent_decode(key.trim()).filter(|key| !key.is_empty())?;
                Some((key, percent_decode(value.trim())?))
            });
            let Some(pair) = pair else {
                let place = format!("{name}, entry {}", index + 1);
                self.problems.push(format!("{place}: not NAME=VALUE with percent-encoded values; correct it (the variable is ignored as a whole)"));
                return Vec::new();
            };
            pairs.push(pair);
        }
        pairs
    }
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (hex_digit(rest.next()?)?, hex_digit(rest.next()?)?);
            bytes.push(high * 16 + low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn check(variables: &[(&str, &str)]) -> (ExportConfig, Vec<String>) {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        read(lookup, Config::default().export)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn nothing_set_means_no_collector_and_the_defaults() {
        for variables in [&[][..], &[("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_SERVICE_NAME", "")]] {
            let (config, problems) = check(variables);
            assert_eq!(problems, Vec::<String>::new());
            assert_eq!((config.otlp, config.metric_interval), (None, Duration::from_secs(10)));
            assert_eq!((config.service_name.as_str(), config.resource_attributes), ("warpgauge", vec![]));
            assert!(config.own_logs && !config.console);
        }
    }

    #[test]
    fn everything_set_is_taken_over() {
        let (config, problems) = check(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x%3D, x-scope = gpu"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k.pem"),
            ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=a%2Cb,service.name=told,host.name=h"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        let want = OtlpConfig {
            endpoint: "https://collector:4317".into(),
            headers: pairs(&[("authorization", "Bearer x="), ("x-scope", "gpu")]),
            timeout: Duration::from_millis(2_500),
            gzip: true,
            ca_file: Some("/ca.pem".into()),
            client_identity: Some(("/c.pem".into(), "/k.pem".into())),
            queue_records: OtlpConfig::QUEUE_RECORDS,
        };
        assert_eq!((config.otlp, config.metric_interval), (Some(want), Duration::from_secs(1)));
        assert_eq!(config.service_name, "told");
        assert_eq!(config.resource_attributes, pairs(&[("k8s.cluster.name", "a,b"), ("host.name", "h")]));
    }

    #[test]
    fn the_service_name_has_a_variable_of_its_own_which_wins() {
        let named = [("OTEL_SERVICE_NAME", "own"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=told")];
        assert_eq!(check(&named).0.service_name, "own");
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_tls_unless_told_otherwise() {
        let endpoint = |variables: &[_]| check(variables).0.otlp.map(|otlp| otlp.endpoint);
        let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
        assert_eq!(endpoint(&[bare]).as_deref(), Some("https://collector:4317"));
        let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "True");
        assert_eq!(endpoint(&[bare, insecure]).as_deref(), Some("http://collector:4317"));
        let same = ["METRICS", "LOGS"].map(|s| format!("OTEL_EXPORTER_OTLP_{s}_ENDPOINT"));
        let same = [(same[0].as_str(), "http://c:1"), (same[1].as_str(), "http://c:1")];
        assert_eq!(endpoint(&same).as_deref(), Some("http://c:1"));
    }

    #[test]
    fn the_exporter_can_be_switched_off() {
        let on = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317");
        let off = [on, ("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")];
        for variables in [&[on, ("OTEL_SDK_DISABLED", "true")][..], &off] {
            let (config, problems) = check(variables);
            assert_eq!((config.otlp, problems), (None, vec![]));
        }
    }

    #[test]
    fn every_problem_names_variable_value_and_remedy() {
        for (name, value, remedy) in [
            ("OTEL_METRIC_EXPORT_INTERVAL", "10s", "milliseconds"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "4317"),
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json", "4317"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/c", "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
            ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "7", "set OTEL_EXPORTER_OTLP_TIMEOUT instead"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "7", "set OTEL_EXPORTER_OTLP_TIMEOUT instead"),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "gzip", "set OTEL_EXPORTER_OTLP_COMPRESSION instead"),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/c", "set OTEL_EXPORTER_OTLP_CERTIFICATE instead"),
            ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "/k", "set OTEL_EXPORTER_OTLP_CLIENT_KEY instead"),
            (
                "OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE",
                "/c",
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE instead",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "true", "set OTEL_EXPORTER_OTLP_INSECURE instead"),
            ("OTEL_LOGS_EXPORTER", "console", "otlp"),
            ("OTEL_SDK_DISABLED", "yes", "true or false"),
        ] {
            let (_, problems) = check(&[(name, value)]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            let problem = &problems[0];
            assert!(
                problem.contains(name) && problem.contains(value) && problem.contains(remedy),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_wrong_header_is_reported_without_its_secret() {
        for value in ["a=1,secret", "a=%zz-secret", "=secret", "a=%ff"] {
            let (_, problems) = check(&[("OTEL_EXPORTER_OTLP_HEADERS", value)]);
            assert_eq!(problems.len(), 1, "{value}");
            assert!(
                problems[0].contains("HEADERS, entry ") && !problems[0].contains("secret"),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn a_setting_for_one_signal_alone_is_a_problem_unless_it_says_the_same() {
        let general = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret");
        let (_, problems) = check(&[general, ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "authorization=secret")]);
        assert_eq!(problems, Vec::<String>::new());
        let (_, problems) = check(&[general, ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization=hidden")]);
        let want = "OTEL_EXPORTER_OTLP_METRICS_HEADERS: metrics and logs are sent alike; set \
                    OTEL_EXPORTER_OTLP_HEADERS instead";
        assert_eq!(problems, [want], "without the secret");
    }
}
