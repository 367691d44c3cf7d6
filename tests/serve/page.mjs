// SPDX-License-Identifier: MIT
// page.mjs ADDRESS OUT CHROMIUM: what page.sh runs.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import puppeteer from "puppeteer-core";

const [address, out, chromium] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({executablePath: chromium, args: ["--no-sandbox"]});
const page = await browser.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => { if (message.type() === "error") problems.push(message.text()); });
page.on("request", (request) => {
  if (!request.url().startsWith(address) && !request.url().startsWith("data:")) problems.push("request " + request.url());
});
const texts = () => page.$$eval("article .body:not(details .body)", (nodes) => nodes.map((node) => node.innerText));
const idle = () => page.waitForFunction(() => document.getElementById("stop").hidden, {timeout: 60000});
const busy = () => page.waitForFunction(() => !document.getElementById("stop").hidden, {timeout: 60000});
const press = async (text, nth = 0) => {
  const found = [];
  for (const node of await page.$$("article button"))
    if (await node.evaluate((button) => button.textContent) === text) found.push(node);
  await found.at(nth).click();
};
const settings = async (values) => {
  await page.click("#open-settings");
  for (const [id, value] of Object.entries(values)) {
    await page.$eval("#" + id, (node) => { node.value = ""; });
    await page.type("#" + id, value);
  }
  await page.click("#settings button.main");
};

await page.setViewport({width: 1200, height: 800});
await page.goto(address);
await page.waitForFunction(() => document.getElementById("model").textContent.includes("stories"));
await settings({"s-max": "60", "s-temperature": "0"});

// a message by keyboard, and its answer
await page.type("#input", "Once upon a time");
await page.keyboard.press("Enter");
await busy();
await idle();
let shown = await texts();
assert.equal(shown.length, 2);
assert.equal(shown[0], "Once upon a time");
assert.ok(shown[1].length > 20, shown[1]);
assert.match(await page.$eval("article.assistant .tools span", (node) => node.textContent), /60 tokens, [\d.]+ per second/);
const first = shown[1];

// the same again, and an edited message
await press("Regenerate");
await idle();
assert.equal((await texts())[1], first);
await press("Edit");
await page.$eval("article textarea", (node) => { node.value = "The dog"; });
await press("Send");
await busy();
await idle();
shown = await texts();
assert.equal(shown.length, 2);
assert.equal(shown[0], "The dog");

// an answer that is stopped
await settings({"s-max": "3000"});
await page.type("#input", "More");
await page.keyboard.press("Enter");
await page.waitForFunction(() => [...document.querySelectorAll("article.assistant")].at(-1).innerText.length > 60);
await page.click("#stop");
await idle();
assert.match(await page.$$eval("article.assistant .tools span", (nodes) => nodes.at(-1).textContent), /stopped/);

// another conversation; both are there after a reload
await settings({"s-max": "20"});
await page.click("#new");
await page.type("#input", "Tom and Lily");
await page.click("#send");
await busy();
await idle();
await page.reload();
await page.waitForFunction(() => document.querySelectorAll("#list li").length === 2);
await page.click("#list li:nth-child(2) button");
assert.equal((await texts())[0], "The dog");

// markdown that would be dangerous as HTML is text
const evil = "# Title\n**bold** `code` [link](https://example.org/a) [bad](javascript:alert(1)) <img src=x onerror=alert(1)>\n\n" +
  "![picture](https://example.org/x.png)\n\n```c\nint main(void) { return 0; }\n```\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\n<script>alert(1)</script>";
await page.evaluate((text) => {
  const chats = JSON.parse(localStorage.getItem("tandem-chats"));
  chats.unshift({messages: [{role: "user", content: "Show <b>markdown</b>"},
    {role: "assistant", content: text, reasoning: "first **this**", note: "12 tokens, 34.5 per second"}]});
  localStorage.setItem("tandem-chats", JSON.stringify(chats));
}, evil);
await page.reload();
await page.waitForFunction(() => document.querySelectorAll("#list li").length === 3);
await page.click("#list li:nth-child(1) button");
const links = await page.$$eval("article a", (nodes) => nodes.map((node) => [node.href, node.rel]));
assert.deepEqual(links, [["https://example.org/a", "noopener noreferrer nofollow"], ["https://example.org/x.png", "noopener noreferrer nofollow"]]);
assert.equal((await page.$$("article img, article script, article b")).length, 0);
assert.equal((await page.$$("article pre code, article table, article blockquote, article ul")).length, 4);

// screenshots, and what axe finds
for (const scheme of ["light", "dark"]) {
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: scheme}]);
  for (const [name, width, height] of [["wide", 1200, 800], ["narrow", 390, 800]]) {
    await page.setViewport({width, height});
    await page.click("#tab-chat");
    await page.screenshot({path: `${out}/chat-${scheme}-${name}.png`});
    await page.click("#tab-status");
    await page.waitForFunction(() => document.querySelectorAll("#figures div").length > 10, {timeout: 20000});
    await page.screenshot({path: `${out}/status-${scheme}-${name}.png`});
  }
}
// axe is a script of its own, which the page's policy does not allow; it runs in a page without one
for (const scheme of ["light", "dark"]) {
  const other = await browser.newPage();
  await other.setBypassCSP(true);
  await other.emulateMediaFeatures([{name: "prefers-color-scheme", value: scheme}]);
  await other.setViewport({width: 1200, height: 800});
  await other.goto(address);
  await other.waitForFunction(() => document.querySelectorAll("#list li").length === 3);
  await other.click("#list li:nth-child(1) button");
  await other.evaluate(axe);
  const found = await other.evaluate(async () => (await window.axe.run()).violations.map(
    (one) => one.id + ": " + one.nodes.map((node) => node.target.join(" ")).join(", ")));
  assert.deepEqual(found, []);
  await other.close();
}
assert.deepEqual(problems, []);
await browser.close();
console.log("passed the page");
