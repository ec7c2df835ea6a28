// A tool in JavaScript. Each handler gets its arguments as `input`, beside where it is called.
export const handlers = {
  async total({ input, config, logger }) {
    const cents = Math.round(input.count * input.price * 100);
    logger.info(`${input.count} at ${input.price}`);
    return `${(cents / 100).toFixed(2)} ${config.currency}`;
  },
};
