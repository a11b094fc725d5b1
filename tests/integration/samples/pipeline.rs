//! `samples/pipeline`: photos come back smaller, and what can't be read is rejected.

use std::fs;
use std::path::Path;

use super::{Sample, run_well};
use crate::harness::{NewMessage, PROGRAM, Table, trials};

trials![photos_come_back_smaller_and_what_is_none_is_rejected];

const PHOTOGRAPH: &str = "
from PIL import Image
Image.effect_noise((1600, 800), 50).convert('RGB').save('photo.jpg')
";
const LOOK: &str = "
from PIL import Image
image = Image.open('small.jpg')
image.load()
print(image.format, *image.size)
";

fn photos_come_back_smaller_and_what_is_none_is_rejected() {
    let sample = Sample::of("pipeline");
    run_well(sample.python().args(["-c", PHOTOGRAPH]));
    let photo = fs::read(sample.site.path("photo.jpg")).unwrap();
    // The worker is a command of the program under test.
    let programs = Path::new(PROGRAM).parent().unwrap().to_str().unwrap();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let daemon = sample.start(&[("PATH", &path)]);
    let table = Table::open(&sample.site.path("ganger.db"));
    let message = |body: &[u8]| {
        let message = NewMessage::binary(body).to("shrink");
        message.reply_to("small")
    };
    let cut = &photo[..photo.len() / 2];
    table.insert(&[message(&photo), message(cut), message(b"no photo")]);
    daemon.eventually("the queue to be empty", || table.count("shrink") == 0);

    let dead = table.dead();
    assert_eq!(dead.len(), 2, "{dead:#?}");
    for why in ["Premature end of JPEG file", "Not a JPEG file"] {
        let found = dead.iter().find(|letter| letter.error.contains(why));
        let found = found.unwrap_or_else(|| panic!("{why}: {dead:#?}"));
        assert_eq!((&*found.reason, found.attempts), ("rejected", 1));
    }
    assert_eq!(table.count("small"), 1);
    let reply = "SELECT body FROM consumer_messages WHERE queue = 'small'";
    let small: Vec<u8> = table.0.query_row(reply, [], |row| row.get(0)).unwrap();
    fs::write(sample.site.path("small.jpg"), small).unwrap();
    assert_eq!(
        run_well(sample.python().args(["-c", LOOK])),
        "JPEG 200 100\n"
    );
    daemon.stop();
}
