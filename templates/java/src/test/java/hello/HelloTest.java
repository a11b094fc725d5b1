package hello;

import static org.junit.jupiter.api.Assertions.assertEquals;

import ganger.worker.testing.Harness;
import org.junit.jupiter.api.Test;

/** The handler in a real worker, without a daemon. */
class HelloTest {
    @Test
    void whoeverIsNamedIsGreeted() throws Exception {
        var result = Harness.work(Hello::greet, "world").get(0);
        assertEquals(201, result.status());
        assertEquals("Hello, world!", result.text());
    }

    @Test
    void nobodyIsRejected() throws Exception {
        var result = Harness.work(Hello::greet, "").get(0);
        assertEquals(400, result.status());
        assertEquals("nobody to greet", result.text());
    }
}
