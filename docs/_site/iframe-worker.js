// Browsers start no worker for a page that is read from a folder; what searches the site then runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<!doctype html><script src="${new URL(script, document.baseURI)}"></script>`;
      this.started = new Promise((resolve) => frame.addEventListener("load", () => {
        frame.contentWindow.postMessage = (data) => this.hand(data);
        resolve(frame.contentWindow);
      }));
      document.documentElement.append(frame);
    }

    hand(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    }

    async postMessage(data) {
      (await this.started).dispatchEvent(new MessageEvent("message", { data }));
    }
  };
