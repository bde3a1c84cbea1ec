"use strict";
// Zoom by a click on a frame, search by the button or Ctrl-F. Frames carry their
// place and weight as numbers, so that zooming is arithmetic.
(function () {
  const id = (name) => document.getElementById(name);
  const area = id("frames");
  const whole = Number(area.dataset.whole);
  const frames = Array.from(area.getElementsByClassName("f"), (element) => ({
    element,
    start: Number(element.dataset.s),
    weight: Number(element.dataset.w),
    depth: Number(element.dataset.d),
    title: element.querySelector("title").textContent,
    name: element.querySelector("text").textContent,
  }));
  const of = new Map(frames.map((frame) => [frame.element, frame]));
  const percent = (part, all) => (all > 0 ? (100 * part) / all : 0).toFixed(4) + "%";
  let pattern = null;
  let zoomed = frames[0];

  function zoom(target) {
    zoomed = target;
    const end = target.start + target.weight;
    for (const frame of frames) {
      const inside = frame.start >= target.start && frame.start + frame.weight <= end;
      const shown = inside && frame.depth >= target.depth;
      const around = frame.depth < target.depth && frame.start <= target.start &&
        frame.start + frame.weight >= end;
      const classes = frame.element.classList;
      classes.toggle("gone", !shown && !around);
      classes.toggle("around", around);
      const left = around ? 0 : frame.start - target.start;
      const width = around ? target.weight : frame.weight;
      frame.element.setAttribute("x", percent(left, target.weight));
      frame.element.setAttribute("width", percent(width, target.weight));
    }
    id("reset").style.visibility = target.depth > 0 ? "visible" : "hidden";
    count();
  }

  function search() {
    const text = window.prompt("Show functions that match (regular expression):",
      pattern ? pattern.source : "");
    if (text === null) return;
    try {
      pattern = text === "" ? null : new RegExp(text);
    } catch (error) {
      window.alert(error.message);
      return;
    }
    for (const frame of frames) {
      frame.element.classList.toggle("hit", pattern !== null && pattern.test(frame.name));
    }
    count();
  }

  // What the found frames weigh together; a frame within a found one is part of it.
  function count() {
    if (pattern === null) {
      id("found").textContent = " ";
      return;
    }
    const shown = frames.filter((f) => f.element.classList.contains("hit") &&
      !f.element.classList.contains("gone") && f.depth >= zoomed.depth);
    shown.sort((a, b) => a.start - b.start || a.depth - b.depth);
    let sum = 0;
    let end = -1;
    for (const frame of shown) {
      if (frame.start >= end) {
        sum += frame.weight;
        end = frame.start + frame.weight;
      }
    }
    const share = zoomed.weight > 0 ? (100 * sum) / zoomed.weight : 0;
    id("found").textContent = "found: " + share.toFixed(2) + "%";
  }

  function target(event) {
    const element = event.target.closest ? event.target.closest(".f") : null;
    return element ? of.get(element) : undefined;
  }

  area.addEventListener("click", (event) => {
    const frame = target(event);
    if (frame) zoom(frame);
  });
  area.addEventListener("mouseover", (event) => {
    const frame = target(event);
    id("detail").textContent = frame ? frame.title : " ";
  });
  area.addEventListener("mouseout", () => { id("detail").textContent = " "; });
  id("reset").addEventListener("click", () => zoom(frames[0]));
  id("search").addEventListener("click", search);
  window.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      event.preventDefault();
      search();
    } else if (event.key === "Escape" && whole > 0) {
      zoom(frames[0]);
    }
  });
})();
