use super::*;

fn plot(log_x: bool) -> Plot {
    let line = |name: &str, points: &[(f64, f64)], look| Line {
        name: name.to_owned(),
        points: points.to_vec(),
        look,
    };
    let points = [(0.0, 1.0), (1.0, 0.5), (100.0, 0.0)];
    Plot {
        title: "a < b & c".to_owned(),
        x_label: "GiB".to_owned(),
        x_unit: "GiB",
        y_label: "ratio".to_owned(),
        y_scale: Scale::Number,
        log_x,
        lines: vec![
            line("one", &points, Look::Line),
            line("two", &[(f64::NAN, 1.0)], Look::Marked),
        ],
        rules: vec![Rule {
            name: "here".to_owned(),
            x: 50.0,
            line: 1,
        }],
        bars: Vec::new(),
    }
}

#[test]
fn a_chart_in_characters() {
    let text = plot(false).text(21, 5);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "a < b & c");
    assert_eq!(lines[2], "  1 ┤●", "{text}");
    assert_eq!(lines[6], "  0 ┤                    ●", "{text}");
    assert_eq!(lines[8].split_whitespace().last(), Some("100"));
    assert!(text.contains("● one") && text.contains("○ two"));
}

#[test]
fn a_chart_in_svg() {
    for (log_x, points) in [(false, 3), (true, 2)] {
        let svg = plot(log_x).svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("NaN"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<path class=\"pt").count(), points);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains(">here</text>") && svg.contains("data-rule=\"1\""));
        let figure = plot(log_x).figure();
        assert!(!figure.contains("://") && figure.contains("<polyline"));
    }
    assert!(Plot::default().svg().contains("</svg>"), "nothing to show");
    assert!(!Plot::default().text(40, 10).is_empty());
}

#[test]
fn ratios_are_shown_in_percent() {
    let mut plot = plot(false);
    plot.y_scale = Scale::Percent;
    assert!(plot.text(40, 10).contains("100 % ┤"));
    assert!(plot.svg().contains("one: 50.00 % at 1 GiB"));
}
