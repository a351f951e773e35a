//! PCI addresses as the vendor writes them, in the kernel's form.
//!
//! In: `00000000:3B:00.0`. Out: `0000:3b:00.0`. What can go wrong: a domain above four digits (VMD); it is kept.

/// The kernel's form of an address.
pub fn kernel_form(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 && domain.is_ascii() => {
            let (high, low) = domain.split_at(domain.len() - 4);
            if high.bytes().all(|b| b == b'0') { format!("{low}:{rest}") } else { text }
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::kernel_form;

    #[test]
    fn a_domain_has_four_digits_unless_it_needs_more() {
        for (text, want) in [
            ("00000000:3B:00.0", "0000:3b:00.0"),
            ("00010002:3B:00.0", "00010002:3b:00.0"),
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("ééééééé:3b:00.0", "ééééééé:3b:00.0"),
            ("", ""),
        ] {
            assert_eq!(kernel_form(text), want);
        }
    }
}
