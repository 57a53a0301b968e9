//! Charts as PNG: the SVG, drawn with a typeface of its own, so that the picture is the same on
//! every machine and its labels do not depend on what is installed.

use anyhow::{Context, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::sync::Arc;

/// Pixels for a unit of the drawing: enough for paper.
const SCALE: f32 = 2.0;

/// A drawing, its labels in a typeface that is part of the program.
pub(super) fn tree(svg: &str) -> Result<Tree> {
    let mut options = Options::default();
    let fonts = Arc::make_mut(&mut options.fontdb);
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first());
    let family = family.context("the typeface has no name")?.0.clone();
    fonts.set_sans_serif_family(&family);
    options.font_family = family;
    Ok(Tree::from_str(svg, &options)?)
}

/// A drawing as a PNG file.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let tree = tree(svg)?;
    let size = tree.size().to_int_size();
    let side = |length: u32| (length as f32 * SCALE) as u32;
    let pixels = Pixmap::new(side(size.width()), side(size.height()));
    let mut pixels = pixels.context("the chart is too large for a PNG")?;
    let scaled = Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scaled, &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}
