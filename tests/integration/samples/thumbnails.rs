//! `samples/thumbnails`: photos of several kinds get theirs, and what is no image is rejected.

use std::fs;

use super::{Sample, run_well};
use crate::harness::{NewMessage, trials};

trials![photos_get_thumbnails_and_what_is_none_is_rejected];

/// Writes photos; the last of them was taken with the camera on its side.
const PHOTOGRAPH: &str = "
from PIL import Image
Image.new('RGB', (1200, 800), 'teal').save('photos/wide.jpg')
Image.new('RGBA', (100, 900), (9, 9, 9, 9)).save('photos/trips/clear.png')
Image.new('P', (40, 30)).save('photos/small.gif')
turned = Image.Exif()
turned[0x0112] = 6
Image.new('RGB', (1000, 500)).save('photos/turned.jpg', exif=turned)
whole = open('photos/wide.jpg', 'rb').read()
open('photos/cut.jpg', 'wb').write(whole[:len(whole) // 2])
Image.new('1', (20_000, 10_000)).save('photos/bomb.png')
";

/// Prints what there is.
const LOOK: &str = "
import pathlib
from PIL import Image
for path in sorted(pathlib.Path('thumbnails').rglob('*')):
    if path.is_file():
        image = Image.open(path)
        print(path.relative_to('thumbnails'), image.format, *image.size, image.mode)
";

fn photos_get_thumbnails_and_what_is_none_is_rejected() {
    let sample = Sample::of("thumbnails");
    fs::create_dir_all(sample.site.path("photos/trips")).unwrap();
    fs::write(sample.site.path("photos/notes.jpg"), "no image").unwrap();
    run_well(sample.python().args(["-c", PHOTOGRAPH]));
    let good = ["wide.jpg", "trips/clear.png", "small.gif", "turned.jpg"];
    let bad = [
        ("notes.jpg", "no image"),
        ("cut.jpg", "damaged, or too large"),
        ("bomb.png", "damaged, or too large"),
        ("missing.jpg", "no such photo"),
        ("trips", "no such photo"),
        ("../ganger.toml", "not below photos/"),
    ];
    let table = sample.table();
    // Each twice: that changes nothing.
    for _ in 0..2 {
        table.insert(&good.map(|name| NewMessage::new(name).to("thumbnails")));
    }
    table.insert(&bad.map(|(name, _)| NewMessage::new(name).to("thumbnails")));
    let daemon = sample.start(&[]);
    daemon.eventually("all to be settled", || table.count("thumbnails") == 0);
    let there = run_well(sample.python().args(["-c", LOOK]));
    let expected = "small.webp WEBP 40 30 RGB\n\
        trips/clear.webp WEBP 28 256 RGBA\n\
        turned.webp WEBP 128 256 RGB\n\
        wide.webp WEBP 256 171 RGB\n";
    assert_eq!(there, expected);
    let dead = table.dead();
    assert_eq!(dead.len(), bad.len(), "{dead:#?}");
    for (name, why) in bad {
        let is_it = |error: &str| error.contains(why) && error.contains(&format!(": {name}"));
        let found = dead.iter().find(|letter| is_it(&letter.error));
        let found = found.unwrap_or_else(|| panic!("{name}: {dead:#?}"));
        assert_eq!((&*found.reason, found.attempts), ("rejected", 1));
    }
    daemon.stop();
}
