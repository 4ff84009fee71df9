// The search of the site runs in a worker, which browsers refuse to pages that are opened from the disk. There, a hidden
// frame takes its place: same messages, and its scripts are loaded by tags.
"use strict";

class DiskWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    const load = (source) =>
      new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        script.src = new URL(source, location.href).href;
        script.onload = loaded;
        script.onerror = failed;
        inside.document.body.append(script);
      });
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
    this.ready = load(url);
    this.ready.catch(() => this.dispatchEvent(new Event("error")));
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

// The search would leave out a word before a colon and a space, which is what a key of YAML is: `storage: split`.
window.Worker = class extends (location.protocol === "file:" ? DiskWorker : Worker) {
  postMessage(message) {
    const { data } = message;
    super.postMessage(typeof data === "string" ? { ...message, data: data.replace(/:(?=\s|$)/g, "") } : message);
  }
};
