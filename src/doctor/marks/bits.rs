//! Mark bits that a rule matches or changes.

use serde_json::Value;

use super::WHOLE;

/// Parses a number as iptables and ip print it.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the bits of the packet or connection mark that a rule of iptables uses, in the notation of
/// `iptables-save`.
pub(super) fn of_iptables_rule(rule: &str) -> u32 {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let mut used = 0;
    for pair in words.windows(2) {
        used |= match pair[0] {
            // HMARK writes a hash into the whole mark.
            "-j" if pair[1] == "HMARK" => WHOLE,
            // VALUE/MASK: MASK is matched or cleared, and VALUE is set; without MASK all bits are.
            "--mark" | "--set-xmark" | "--set-mark" | "--tproxy-mark" => of_value(pair[1]),
            "--nfmask" | "--ctmask" => number(pair[1]).unwrap_or(WHOLE),
            _ => 0,
        };
    }
    used
}

fn of_value(text: &str) -> u32 {
    let Some((value, mask)) = text.split_once('/') else { return WHOLE };
    match (number(value), number(mask)) {
        (Some(value), Some(mask)) => value | mask,
        _ => WHOLE,
    }
}

/// Returns the bits of the packet or connection mark that a rule of nft uses.
pub(super) fn of_nft_rule(statements: &[Value]) -> u32 {
    statements.iter().map(of_statement).fold(0, |used, bits| used | bits)
}

fn of_statement(statement: &Value) -> u32 {
    let Some(mangle) = statement.get("mangle") else { return observed(statement) };
    let (key, value) = (&mangle["key"], &mangle["value"]);
    if !is_mark(key) {
        return observed(value);
    }
    // The expression copies the bits of the other mark, and changes them here.
    KnownBits::of(value, key).changed()
}

fn is_mark(expression: &Value) -> bool {
    expression["meta"]["key"] == "mark" || expression["ct"]["key"] == "mark"
}

/// Returns the bits of a mark that affect the value of an expression.
fn observed(expression: &Value) -> u32 {
    if is_mark(expression) {
        return WHOLE;
    }
    if let Some([left, right]) = operands(expression, "&") {
        let mask = |side: &Value| side.as_u64().map_or(WHOLE, low);
        return (observed(left) & mask(right)) | (observed(right) & mask(left));
    }
    match expression {
        Value::Array(parts) => parts.iter().map(observed).fold(0, |used, bits| used | bits),
        Value::Object(parts) => parts.values().map(observed).fold(0, |used, bits| used | bits),
        _ => 0,
    }
}

fn operands<'a>(expression: &'a Value, operator: &str) -> Option<[&'a Value; 2]> {
    match expression.get(operator)?.as_array()?.as_slice() {
        [left, right] => Some([left, right]),
        _ => None,
    }
}

/// Truncates a number to the mark's 32 bits; nft prints none that is larger.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(WHOLE)).unwrap_or(WHOLE)
}

/// Known bits of a value that is written to a mark; a bit in none of the three fields is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownBits {
    /// Unchanged bits of the same mark.
    kept: u32,
    /// Bits that are surely 0.
    zero: u32,
    /// Bits that are surely 1.
    one: u32,
}

impl KnownBits {
    const NOTHING: Self = Self { kept: 0, zero: 0, one: 0 };

    fn of(expression: &Value, key: &Value) -> Self {
        if let Some(number) = expression.as_u64() {
            return Self { kept: 0, zero: !low(number), one: low(number) };
        }
        if expression == key {
            return Self { kept: WHOLE, ..Self::NOTHING };
        }
        for (operator, combine) in
            [("&", Self::and as fn(Self, Self) -> Self), ("|", Self::or), ("^", Self::xor)]
        {
            if let Some([left, right]) = operands(expression, operator) {
                return combine(Self::of(left, key), Self::of(right, key));
            }
        }
        Self::NOTHING
    }

    fn and(self, other: Self) -> Self {
        Self {
            kept: (self.kept & (other.one | other.kept)) | (other.kept & self.one),
            zero: self.zero | other.zero,
            one: self.one & other.one,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            kept: (self.kept & (other.zero | other.kept)) | (other.kept & self.zero),
            zero: self.zero & other.zero,
            one: self.one | other.one,
        }
    }

    fn xor(self, other: Self) -> Self {
        Self {
            kept: (self.kept & other.zero) | (other.kept & self.zero),
            zero: (self.zero & other.zero) | (self.one & other.one) | (self.kept & other.kept),
            one: (self.zero & other.one) | (self.one & other.zero),
        }
    }

    fn changed(self) -> u32 {
        !self.kept
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_of_iptables_uses_its_mask_or_every_bit() {
        let cases = [
            ("-A PREROUTING -j MARK --set-xmark 0x80000000/0x80000000", 0x8000_0000),
            ("-A PREROUTING -j MARK --set-xmark 0x1/0xff", 0xff),
            ("-A PREROUTING -m mark --mark 0x2 -j ACCEPT", WHOLE),
            ("-A PREROUTING -m mark ! --mark 0x2/0xff -j ACCEPT", 0xff),
            ("-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", WHOLE),
            ("-A PREROUTING -j CONNMARK --save-mark --nfmask 0xff00 --ctmask 0xff", 0xffff),
            ("-A PREROUTING -p tcp -j TPROXY --on-port 50 --on-ip 0.0.0.0 --tproxy-mark 0x1/0x1", 1),
            ("-A PREROUTING -j HMARK --hmark-tuple src --hmark-mod 4", WHOLE),
            ("-A PREROUTING -p tcp -m tcp --dport 22 -j ACCEPT", 0),
        ];
        for (rule, bits) in cases {
            assert_eq!(of_iptables_rule(rule), bits, "{rule}");
        }
    }

    #[test]
    fn a_rule_of_nft_uses_what_it_compares_or_does_not_keep() {
        let (packet, connection) = (json!({"meta": {"key": "mark"}}), json!({"ct": {"key": "mark"}}));
        let set = |key: &Value, value: Value| json!({"mangle": {"key": key, "value": value}});
        let equals = |left: &Value| json!({"match": {"op": "==", "left": left, "right": 2}});
        let kept = json!({"|": [{"&": [connection.clone(), 0xffff_ff00_u32]}, 5]});
        let cases = [
            (set(&packet, json!(0xc000_0000_u32)), WHOLE),
            (set(&connection, packet.clone()), WHOLE),
            (set(&connection, kept), 0xff),
            (set(&connection, json!({"^": [connection, 0x30]})), 0x30),
            (set(&packet, json!({"|": [packet, 0x4000]})), 0x4000),
            (set(&connection, json!({"&": [packet, 255]})), WHOLE),
            (set(&packet, json!({"map": {"key": connection, "data": {"set": [[1, 2]]}}})), WHOLE),
            (equals(&packet), WHOLE),
            (equals(&json!({"&": [packet, 255]})), 0xff),
            (json!({"vmap": {"key": packet, "data": {"set": [[1, {"accept": null}]]}}}), WHOLE),
            (equals(&json!({"payload": {"protocol": "tcp", "field": "dport"}})), 0),
            (json!({"mangle": {"key": {"meta": {"key": "priority"}}, "value": 7}}), 0),
        ];
        for (statement, bits) in cases {
            assert_eq!(of_nft_rule(std::slice::from_ref(&statement)), bits, "{statement}");
        }
    }
}
