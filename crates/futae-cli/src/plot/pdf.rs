//! Charts as PDF: the paths of the SVG, in the same units, so that a chart stays sharp at any size. Labels are outlines of
//! the typeface of the PNG: the file embeds no font, and looks the same everywhere.

use super::png::tree;
use anyhow::{Result, bail};
use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Finish, Pdf, Rect, Ref};
use resvg::tiny_skia::{PathSegment, Point, Transform};
use resvg::usvg::{Color, FillRule, Group, LineCap, LineJoin, Node, Paint, PaintOrder, Path};

/// A drawing as a PDF file of one page as large as the drawing, a unit a point.
pub fn pdf(svg: &str) -> Result<Vec<u8>> {
    let tree = tree(svg)?;
    let size = tree.size();
    let mut content = Content::new();
    // PDF counts from the bottom.
    content.transform([1.0, 0.0, 0.0, -1.0, 0.0, size.height()]);
    draw(tree.root(), &mut content)?;
    let [catalog, pages, page, stream] = [1, 2, 3, 4].map(Ref::new);
    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let mut sheet = pdf.page(page);
    sheet.parent(pages).contents(stream);
    sheet.media_box(Rect::new(0.0, 0.0, size.width(), size.height()));
    sheet.resources();
    sheet.finish();
    pdf.stream(stream, &content.finish());
    Ok(pdf.finish())
}

fn draw(group: &Group, content: &mut Content) -> Result<()> {
    match group.opacity().get() {
        0.0 => return Ok(()),
        1.0 => {}
        _ => bail!("a group of the drawing is half transparent, which its PDF cannot be"),
    }
    for node in group.children() {
        match node {
            Node::Group(group) => draw(group, content)?,
            Node::Path(path) => draw_path(path, content)?,
            Node::Text(text) => draw(text.flattened(), content)?,
            Node::Image(_) => bail!("the drawing holds an image, which its PDF cannot"),
        }
    }
    Ok(())
}

fn draw_path(path: &Path, content: &mut Content) -> Result<()> {
    if !path.is_visible() {
        return Ok(());
    }
    let fill = |content: &mut Content| -> Result<()> {
        let Some(fill) = path.fill() else {
            return Ok(());
        };
        let [red, green, blue] = colour(fill.paint(), fill.opacity().get())?;
        content.set_fill_rgb(red, green, blue);
        outline(path, content);
        match fill.rule() {
            FillRule::NonZero => content.fill_nonzero(),
            FillRule::EvenOdd => content.fill_even_odd(),
        };
        Ok(())
    };
    let stroke = |content: &mut Content| -> Result<()> {
        let Some(stroke) = path.stroke() else {
            return Ok(());
        };
        let [red, green, blue] = colour(stroke.paint(), stroke.opacity().get())?;
        content.set_stroke_rgb(red, green, blue);
        content.set_line_width(stroke.width().get());
        content.set_line_cap(match stroke.linecap() {
            LineCap::Butt => LineCapStyle::ButtCap,
            LineCap::Round => LineCapStyle::RoundCap,
            LineCap::Square => LineCapStyle::ProjectingSquareCap,
        });
        content.set_line_join(match stroke.linejoin() {
            LineJoin::Miter | LineJoin::MiterClip => LineJoinStyle::MiterJoin,
            LineJoin::Round => LineJoinStyle::RoundJoin,
            LineJoin::Bevel => LineJoinStyle::BevelJoin,
        });
        let dashes = stroke.dasharray().unwrap_or_default();
        content.set_dash_pattern(dashes.iter().copied(), stroke.dashoffset());
        outline(path, content);
        content.stroke();
        Ok(())
    };
    let Transform {
        sx,
        kx,
        ky,
        sy,
        tx,
        ty,
    } = path.abs_transform();
    content.save_state();
    content.transform([sx, ky, kx, sy, tx, ty]);
    match path.paint_order() {
        PaintOrder::FillAndStroke => {
            fill(content)?;
            stroke(content)?;
        }
        PaintOrder::StrokeAndFill => {
            stroke(content)?;
            fill(content)?;
        }
    }
    content.restore_state();
    Ok(())
}

/// Red, green and blue from 0 to 1.
fn colour(paint: &Paint, opacity: f32) -> Result<[f32; 3]> {
    match paint {
        Paint::Color(Color { red, green, blue }) if opacity == 1.0 => {
            Ok([red, green, blue].map(|&part| f32::from(part) / 255.0))
        }
        _ => bail!("the drawing holds a colour that is not plain, which its PDF cannot"),
    }
}

fn outline(path: &Path, content: &mut Content) {
    let mut last = Point::zero();
    for segment in path.data().segments() {
        match segment {
            PathSegment::MoveTo(to) => {
                content.move_to(to.x, to.y);
                last = to;
            }
            PathSegment::LineTo(to) => {
                content.line_to(to.x, to.y);
                last = to;
            }
            // PDF has cubic curves only.
            PathSegment::QuadTo(by, to) => {
                let towards = |from: f32, by: f32| from + (by - from) * 2.0 / 3.0;
                content.cubic_to(
                    towards(last.x, by.x),
                    towards(last.y, by.y),
                    towards(to.x, by.x),
                    towards(to.y, by.y),
                    to.x,
                    to.y,
                );
                last = to;
            }
            PathSegment::CubicTo(a, b, to) => {
                content.cubic_to(a.x, a.y, b.x, b.y, to.x, to.y);
                last = to;
            }
            PathSegment::Close => {
                content.close_path();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pdf;

    const HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50\">";

    fn drawn(body: &str) -> Result<String, String> {
        let bytes = pdf(&format!("{HEAD}{body}</svg>")).map_err(|error| error.to_string())?;
        assert!(bytes.starts_with(b"%PDF-") && bytes.ends_with(b"%%EOF"));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn paths_are_where_the_drawing_has_them() {
        let body = "<g transform=\"translate(10 20)\"><rect width=\"30\" height=\"5\" fill=\"#ff0000\"/></g>\
                    <path d=\"M1 2L3 4\" stroke=\"#0000ff\" stroke-width=\"2\" stroke-dasharray=\"7 3\"/>\
                    <g opacity=\"0\"><path d=\"M77 7L78 8\" stroke=\"#000\"/></g>";
        let text = drawn(body).expect("a PDF");
        for wanted in [
            "/MediaBox [0 0 100 50]",
            "1 0 0 -1 0 50 cm",
            "1 0 0 1 10 20 cm",
            "1 0 0 rg",
            "30 0 l",
            "0 0 1 RG",
            "2 w",
            "[7 3] 0 d",
            "1 2 m\n3 4 l\nS",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert!(!text.contains("77 7 m"), "what is not seen is not drawn");
    }

    #[test]
    fn labels_are_outlines() {
        let paths = |body: &str| drawn(body).expect("a PDF").matches("\nf\n").count();
        assert_eq!(paths(""), 0);
        assert!(paths("<text x=\"5\" y=\"20\" fill=\"#222\">miss ratio</text>") > 0);
    }

    #[test]
    fn what_it_cannot_draw_is_refused() {
        for body in [
            "<rect width=\"5\" height=\"5\" fill-opacity=\"0.5\"/>",
            "<g opacity=\"0.5\"><rect width=\"5\" height=\"5\"/></g>",
            "<linearGradient id=\"g\"><stop offset=\"0\" stop-color=\"#000\"/><stop offset=\"1\" stop-color=\"#fff\"/>\
             </linearGradient><rect width=\"5\" height=\"5\" fill=\"url(#g)\"/>",
        ] {
            assert!(drawn(body).is_err(), "{body}");
        }
    }
}
