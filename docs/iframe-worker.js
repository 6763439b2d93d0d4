// The search of the site runs in a Worker, which browsers refuse to pages opened from a folder (file:). There, and only
// there, this stands in: the worker's script runs in a hidden frame and messages are passed on.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      inside.document.open();
      inside.document.write(`<html><body><script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((resolve, reject) => {
          const script = document.createElement("script");
          Object.assign(script, { src: url, onload: resolve, onerror: reject });
          document.body.appendChild(script);
        })));
      <\/script><script src="${url}"><\/script></body></html>`);
      inside.document.close();
      this.ready = new Promise((resolve) => { inside.onload = resolve; });
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
