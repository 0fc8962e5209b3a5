//! Forecast of the rules' effect on software of which only the identifying line is known.

use super::advisory::Advisory;
use super::evaluate_rule::scope_as_told;
use super::example::RuleExample;
use super::field::BannerField;
use super::field::BannerSender;
use super::policy::Policy;
use super::rule::Rule;
use super::rule_set::RuleSet;
use super::scope::AssumedConnection;
use crate::event::{Protocol, Side};

impl RuleSet {
    /// Returns the blocking rules that the line naming the software is enough to decide, and that
    /// would stop the connection. They see addresses and port only if `ends` names them.
    pub fn would_stop(&self, said: &RuleExample, from: Side, ends: AssumedConnection) -> Vec<&Rule> {
        let sender = match from {
            Side::Client => BannerSender::Client,
            Side::Server => BannerSender::Server,
        };
        let told = self.explain(said, sender, ends).into_iter();
        let stops = told.filter(|told| told.matches && told.action.blocks() && !told.open);
        stops.map(|told| told.rule).filter(|rule| rule.asks_names_only()).collect()
    }

    /// Returns true if a rule that a policy names allows this banner.
    pub fn is_allowed_by(&self, policy: &Policy, said: &RuleExample) -> bool {
        policy.allow_rules().any(|(index, _)| {
            let rule = self.rules.get(index);
            rule.is_some_and(|rule| {
                self.explain_rule(rule, said, rule.from(), AssumedConnection::default()).matches
            })
        })
    }

    /// Returns the blocking rules that need more than this line.
    pub fn unforeseen(&self) -> impl Iterator<Item = &Rule> {
        let by_kex = |rule: &Rule| rule.advisory.as_ref().is_some_and(Advisory::may_block_by_markers);
        self.rules
            .iter()
            .filter(move |rule| rule.action.blocks() && (!rule.asks_names_only() || by_kex(rule)))
    }
}

impl Rule {
    /// Returns true if the rule is about a connection with these ends, as far as they are known.
    pub fn admits(&self, ends: AssumedConnection) -> bool {
        scope_as_told(self, ends).is_ok()
    }

    /// True if the rule reads only what names software: an SSH identification, a `Server` or
    /// `User-Agent` field, the first line of a greeting.
    fn asks_names_only(&self) -> bool {
        let names = |field: &BannerField| match (self.protocol, field) {
            (Protocol::Http, BannerField::Header(name)) => {
                name == "server" || (name == "user-agent" && self.from == BannerSender::Client)
            }
            (Protocol::Http | Protocol::Other, _) => false,
            (_, field) => {
                matches!(
                    field,
                    BannerField::Banner
                        | BannerField::Software
                        | BannerField::Comments
                        | BannerField::Code
                        | BannerField::Text
                )
            }
        };
        let conditions = self.all.iter().chain(&self.unless);
        self.request.is_none()
            && self.count.is_none()
            && self.absent.is_empty()
            && self.present.is_empty()
            && !self.later
            && conditions.map(|condition| &condition.field).all(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_name_decides_is_foreseen() {
        let rule = |id: &str, rest: &str| format!("[[rule]]\nid = \"{id}\"\n{rest}\naction = \"drop\"\n");
        let text = [
            rule("old", "protocol = \"ssh\"\nmatch.software = '^OpenSSH_(?<version>.*)'\nversion = \"<9\""),
            rule("net", "protocol = \"ssh\"\nmatch.software = '^OpenSSH'\ndestination = \"192.0.2.0/24\""),
            rule("kex", "protocol = \"ssh\"\nfrom = \"server\"\nmatch.kex = 'sha1'"),
            rule("page", "protocol = \"http\"\nfrom = \"server\"\nmatch.status = '^200'"),
            rule(
                "asked",
                "protocol = \"http\"\nfrom = \"server\"\nrequest = { method = \"GET\", path = \"/x\" }\nmatch.\"header.server\" = 'nginx'",
            ),
            rule("nginx", "protocol = \"http\"\nfrom = \"server\"\nmatch.\"header.server\" = 'nginx'"),
            "[[rule]]\nid = \"watched\"\nprotocol = \"ssh\"\nmatch.software = 'SSH'\naction = \"alert\"\n"
                .to_owned(),
        ];
        let set = RuleSet::parse("a.toml", &text.concat()).unwrap_or_else(|error| panic!("{error}")).rules;
        let stops = |text: &str, protocol, ends| -> Vec<String> {
            let said = RuleExample::from_text(text, protocol, BannerSender::Server).unwrap();
            set.would_stop(&said, Side::Server, ends).iter().map(|rule| rule.id().to_owned()).collect()
        };
        let at =
            |text: &str| AssumedConnection { destination: text.parse().ok(), ..AssumedConnection::default() };
        assert_eq!(stops("SSH-2.0-OpenSSH_8.4", Protocol::Ssh, at("192.0.2.7")), ["old", "net"]);
        assert_eq!(stops("SSH-2.0-OpenSSH_8.4", Protocol::Ssh, at("198.51.100.7")), ["old"]);
        assert_eq!(stops("SSH-2.0-OpenSSH_9.9", Protocol::Ssh, at("198.51.100.7")), Vec::<String>::new());
        assert_eq!(
            stops("HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\n", Protocol::Http, AssumedConnection::default()),
            ["nginx"]
        );
        let unforeseen: Vec<&str> = set.unforeseen().map(Rule::id).collect();
        assert_eq!(unforeseen, ["kex", "page", "asked"]);
    }

    #[test]
    fn of_advisories_only_what_really_stops_is_foreseen() {
        let rule = |id: &str, more: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nprotocol = \"ssh\"\nfrom = \"server\"\nmatch.software = '^OpenSSH_(?<version>.*)'\naction = \"drop\"\n[rule.advisory]\nsource = \"x\"\nreport = [\"affected\", \"unknown\", \"fixed\"]\npackages = [{{ distribution = \"Debian\", release = \"12\", newest = \"1:9.2p1-2+deb12u9\", fixed = \"1:9.2p1-2+deb12u3\" }}]\n{more}\n"
            )
        };
        let text = [
            rule("plain", ""),
            rule("strict", "block_unknown = true"),
            rule("bound", "fixed_if = [\"debian-12-openssh-sntrup761\"]"),
            rule("marked", "fixed_if = [\"strict-kex-server\"]"),
            rule("awaits", "fixed_if = [\"debian-12-openssh-sntrup761\"]\nblock_unknown = true"),
            rule("betrayed", "affected_if = [\"terrapin-cbc\"]"),
        ];
        let set = RuleSet::parse("a.toml", &text.concat()).unwrap_or_else(|error| panic!("{error}")).rules;
        let stops = |line: &str| -> Vec<String> {
            let said = RuleExample::from_text(line, Protocol::Ssh, BannerSender::Server).unwrap();
            let rules = set.would_stop(&said, Side::Server, AssumedConnection::default());
            rules.iter().map(|rule| rule.id().to_owned()).collect()
        };
        let vulnerable = stops("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2");
        assert_eq!(vulnerable, ["plain", "strict", "bound", "awaits", "betrayed"]);
        assert_eq!(stops("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3"), Vec::<String>::new());
        assert_eq!(stops("SSH-2.0-OpenSSH_9.2p1"), ["strict"]);
        let unforeseen: Vec<&str> = set.unforeseen().map(Rule::id).collect();
        assert_eq!(unforeseen, ["marked", "awaits", "betrayed"]);
    }
}
